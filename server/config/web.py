"""Settings of the HTTP listener: the pages that may use it, and the limits of one of its connections."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from dataspace.errors import UsageError

ANY: Final = "*"
_ORIGIN: Final = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?")
_NAME: Final = re.compile(r"[a-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Web:
    """Limits of one HTTP connection, in bytes and seconds, and the origins of pages that are not its own."""

    origins: tuple[str, ...] = ()
    """Origins whose pages may connect beside the daemon's own, such as ``https://app.example``; or ``*``."""
    header_bytes: int = 16 << 10
    """Bytes of the first line and the headers of a request."""
    header_seconds: float = 10.0
    """From the first moment of a connection, or of waiting for its next request's first byte to its end."""
    idle_seconds: float = 60.0
    """Between two requests of a connection."""
    body_bytes: int = 4 << 20
    body_seconds: float = 30.0
    """For the body of a request, from its headers on."""


def origins(value: object) -> tuple[str, ...]:
    """Returns the origins of a setting: one or several, separated by commas in text.

    >>> origins("https://app.example, http://localhost:5173")
    ('https://app.example', 'http://localhost:5173')
    """
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        raise UsageError(f"an origin or an array of them is needed, not {value!r:.80}")
    return tuple([_origin(each) for each in given if each != ""])


def _origin(value: object) -> str:
    said = value.strip().lower() if isinstance(value, str) else ""
    if said != ANY and not _ORIGIN.fullmatch(said):
        raise UsageError(
            f"an origin such as 'https://app.example', or '*' for all, is needed, not {value!r:.80}"
        )
    return said


def names(value: object) -> tuple[str, ...]:
    """Returns the names of a setting: one or several, separated by commas in text.

    >>> names("a.example, b.example")
    ('a.example', 'b.example')
    """
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        raise UsageError(f"a name or an array of them is needed, not {value!r:.80}")
    return tuple([_name(each) for each in given if each != ""])


def _name(value: object) -> str:
    said = value.strip().lower() if isinstance(value, str) else ""
    if not _NAME.fullmatch(said):
        raise UsageError(f"a name without a port is needed, such as 'metrics.internal', not {value!r:.80}")
    return said
