"""Reads the arguments of a request: each is checked, and refused with its name and the found value."""

from __future__ import annotations

from dataspace.errors import Refused
from index.values.values import Map, Value


def text(arguments: Map, name: str, default: str | None = None) -> str:
    """Returns a text argument, of at most 4 096 characters."""
    value = arguments.get(name, default)
    if value.__class__ is not str or len(value) > 4096:
        raise Refused("bad-request", f"{name} must be text of at most 4096 characters, got {value!r:.60}")
    return value


def number(arguments: Map, name: str, default: int | None = None) -> int:
    """Returns an integer argument, from -1 to 2^63-1."""
    value = arguments.get(name, default)
    if value.__class__ is not int or not -1 <= value < 1 << 63:
        raise Refused("bad-request", f"{name} must be a number from -1 to 2^63-1, got {value!r:.60}")
    return value


def texts(arguments: Map, name: str) -> tuple[str, ...]:
    """Returns an argument that is an array of text."""
    return key(arguments.get(name))


def key(value: Value) -> tuple[str, ...]:
    """Returns a value that is an array of text, such as the key of staged operations."""
    if value.__class__ is tuple and value and all(each.__class__ is str for each in value):
        return value  # type: ignore[return-value]  # as just checked
    raise Refused("bad-request", f"a key is an array of text, got {value!r:.60}")
