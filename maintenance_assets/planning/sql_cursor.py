"""A place in the tokens of an SQL text."""

from maintenance_assets.planning.expressions import Span, pointing_at
from maintenance_assets.planning.sql_tokens import Kind, Token, tokenize


class Cursor:
    """Steps through tokens from left to right; what does not fit is pointed at."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = tokenize(text)
        self._position = 0

    @property
    def next(self) -> Token:
        """The token that comes next."""
        return self._tokens[self._position]

    def at_end(self) -> bool:
        """Whether all tokens are taken."""
        return self.next.kind is Kind.END

    def ahead(self, count: int = 1) -> Token:
        """A token further on."""
        return self._tokens[min(self._position + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        """The next token, and step over it; the end stays."""
        token = self.next
        self._position += not self.at_end()
        return token

    def sees(self, *values: str) -> bool:
        """Whether the next token is one of these words or symbols."""
        token = self.next
        return token.kind in (Kind.WORD, Kind.SYMBOL) and token.value in values

    def accept(self, *values: str) -> Token | None:
        """The next token if it is one of these words or symbols."""
        return self.take() if self.sees(*values) else None

    def expect(self, value: str) -> Token:
        """The next token, which has to be this word or symbol."""
        if not self.sees(value):
            raise self.error(self.next.span, f"Expected {value}, found {self.found}")
        return self.take()

    @property
    def found(self) -> str:
        """The next token as a message shows it."""
        return self.next.text if self.at_end() else repr(self.next.text)

    def error(self, span: Span, message: str) -> ValueError:
        """An error that points at a place in the text."""
        return pointing_at(self.text, span, message)
