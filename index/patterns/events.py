"""Events: what a callback is called with, and which handlers may see a value.

They are apart from the index because the generated code (``readers``) needs them too.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, TypeAlias, final

from index.values.positions import Path
from index.values.values import Value


class Event(enum.Enum):
    """The reason for which a callback is called with its captures."""

    ADDED = "+"
    REMOVED = "-"
    MESSAGE = "!"


ADDED: Final = Event.ADDED
REMOVED: Final = Event.REMOVED
MESSAGE: Final = Event.MESSAGE

Captures: TypeAlias = tuple[Value, ...]
Callback: TypeAlias = Callable[[Event, Captures], None]
Cleanup: TypeAlias = Callable[[list[Captures]], None]
Visible: TypeAlias = frozenset[Path]
"""The paths at which a handler may capture to see a restricted value."""


@final
class Restricted:
    """A value that is visible only to handlers that capture at no other paths than ``paths``.

    A relay between two spaces asserts a fact in this form: an endpoint brought the fact, and the parts that
    the endpoint does not capture are not known there (HOWITWORKS, "visibility restriction").
    """

    __slots__ = ("paths", "value")

    def __init__(self, value: Value, paths: Visible) -> None:
        self.value: Final = value
        self.paths: Final = paths


Entry: TypeAlias = Value | Restricted
"""What an index holds: a value, or a value that is restricted to some handlers."""
