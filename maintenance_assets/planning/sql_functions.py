"""The functions that an SQL expression may call: pure, and a value for each row."""

from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class Signature:
    """How many arguments a function takes."""

    least: int
    most: int | None

    def describe(self) -> str:
        """The number of arguments in words."""
        if self.most is None:
            return f"at least {self.least}"
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


_ONE = Signature(1, 1)
_TWO = Signature(2, 2)
_ONE_OR_TWO = Signature(1, 2)
_ANY = Signature(1, None)

DATE_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
DATE_PARTS = (*DATE_UNITS, "isodow", "doy")

SIGNATURES: dict[str, Signature] = {
    **dict.fromkeys(DATE_PARTS, _ONE),
    "date_trunc": _TWO,
    "strftime": _TWO,
    "lower": _ONE,
    "upper": _ONE,
    "length": _ONE,
    "trim": _ONE_OR_TWO,
    "ltrim": _ONE_OR_TWO,
    "rtrim": _ONE_OR_TWO,
    "substring": Signature(2, 3),
    "replace": Signature(3, 3),
    "concat": _ANY,
    "starts_with": _TWO,
    "ends_with": _TWO,
    "contains": _TWO,
    "coalesce": _ANY,
    "nullif": _TWO,
    "greatest": _ANY,
    "least": _ANY,
    "abs": _ONE,
    "round": _ONE_OR_TWO,
    "floor": _ONE,
    "ceil": _ONE,
    "isnan": _ONE,
    "isfinite": _ONE,
}
_SYNONYMS = {
    "dayofmonth": "day",
    "dayofyear": "doy",
    "weekofyear": "week",
    "lcase": "lower",
    "ucase": "upper",
    "len": "length",
    "char_length": "length",
    "character_length": "length",
    "substr": "substring",
    "ceiling": "ceil",
    "ifnull": "coalesce",
    "nvl": "coalesce",
    "startswith": "starts_with",
    "endswith": "ends_with",
    "datetrunc": "date_trunc",
    "prefix": "starts_with",
    "suffix": "ends_with",
}
_REASONS = {
    **dict.fromkeys(
        ("dayofweek", "dow", "weekday"), "engines count its days differently; use isodow (1 to 7)"
    ),
    **dict.fromkeys(
        ("now", "today", "current_date", "current_timestamp", "random", "uuid", "gen_random_uuid"),
        "its value changes from call to call; write the value itself",
    ),
    **dict.fromkeys(
        ("count", "sum", "avg", "mean", "min", "max", "any_value", "first", "last", "list"),
        "an expression sees one row at a time, and cannot aggregate",
    ),
    **dict.fromkeys(
        ("row_number", "rank", "dense_rank", "lag", "lead", "ntile"),
        "an expression sees one row at a time, and has no window",
    ),
    "regexp_matches": "engines differ in regular expressions; use LIKE",
    "getenv": "an expression reads nothing but the row",
}


def canonical_name(name: str) -> str:
    """The one name of a function; ValueError in words when it cannot be called."""
    lower = name.lower()
    lower = _SYNONYMS.get(lower, lower)
    if lower in SIGNATURES:
        return lower
    if lower in _REASONS:
        raise ValueError(f"The function {lower} is not available: {_REASONS[lower]}")
    close = get_close_matches(lower, SIGNATURES, 1)
    hint = f" Did you mean {close[0]}?" if close else ""
    raise ValueError(
        f"Unknown function {lower}.{hint} Available functions: {', '.join(sorted(SIGNATURES))}"
    )


def check_arguments(name: str, count: int) -> None:
    """ValueError in words when a function does not take so many arguments."""
    signature = SIGNATURES[name]
    if count < signature.least or (signature.most is not None and count > signature.most):
        wanted = signature.describe()
        raise ValueError(f"The function {name} takes {wanted} argument(s), not {count}")
