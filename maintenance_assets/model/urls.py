"""URLs as they may be told: without what could be a password."""

import re

_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")
_USER = re.compile(r"://[^/@]*@")
# A password without the escapes that it needs ends nobody knows where; a port is none.
_UNESCAPED = re.compile(r"://[^/@:]*:(?!\d+(?:/|$)).*@")
_OPTION = re.compile(r"([?&][^=&]*=)[^&]*")


def shown_url(url: str) -> str:
    """A path or URL for messages: no user, no password, no value of an option."""
    if "://" not in url:
        return url
    return _OPTION.sub(r"\1***", _USER.sub("://", _UNESCAPED.sub("://", url)))


def without_password(url: str) -> str:
    """A URL that can still be opened by whoever has the password."""
    return _PASSWORD.sub("://", url)
