"""The address of a store in PostgreSQL, as operators write it: ``postgresql://HOST,HOST/DB?schema=NAME``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from dataspace.errors import UsageError

SCHEMES: Final = ("postgresql", "postgres")

SCHEMA: Final = "dataspace"
"""The schema of an address that names none."""

_MOST_SCHEMA: Final = 63
"""Bytes of a name in PostgreSQL."""

_SECRET: Final = ("password", "sslpassword")


def is_store_address(text: str) -> bool:
    """True for the address of a database, whether it is a right one or not."""
    return text.partition("://")[0] in SCHEMES and "://" in text


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where a store is.  ``str`` shows it without its passwords."""

    url: str
    """The address for libpq, passwords included."""
    schema: str = SCHEMA
    wait: float = 0.0
    """For how many seconds what opens the store waits for a database that is away."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads an address; raises ``UsageError`` for any other text.

        All parameters but ``schema`` and ``wait`` are libpq's own.
        """
        parts = urlsplit(text)
        if parts.scheme not in SCHEMES:
            raise UsageError(f"no address of a database: {text!r}; one begins with postgresql://")
        schema, wait, parameters = SCHEMA, 0.0, list[tuple[str, str]]()
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if name == "schema":
                schema = value
            elif name == "wait":
                wait = _seconds(value)
            else:
                parameters.append((name, value))
        if not 0 < len(schema.encode()) <= _MOST_SCHEMA or "\0" in schema:
            raise UsageError(f"a schema has a name of 1 to {_MOST_SCHEMA} bytes, not {schema!r}")
        return cls(_joined(parts.netloc, parts.path, urlencode(parameters, quote_via=quote)), schema, wait)

    @property
    def text(self) -> str:
        """The address as ``parse`` reads it, passwords included."""
        return f"{self.url}{'&' if '?' in self.url else '?'}{urlencode({'schema': self.schema})}"

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        user, at, hosts = parts.netloc.rpartition("@")
        name, colon, _ = user.partition(":")
        shown = [(key, "***" if key in _SECRET else value) for key, value in parse_qsl(parts.query)]
        shown.append(("schema", self.schema))
        netloc = f"{name}{colon and ':***'}{at}{hosts}"
        return _joined(netloc, parts.path, urlencode(shown, safe="*/", quote_via=quote))

    __repr__ = __str__


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < math.inf:
        raise UsageError(f"a store is waited for some seconds, not {text!r}")
    return found


def _joined(netloc: str, path: str, query: str) -> str:
    return f"postgresql://{netloc}{path}{query and '?'}{query}"
