"""Events: what a callback is told, and by whom it may be told.

They are apart from the index because what is written out for it (``projections``) speaks of them too.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, TypeAlias

from index.values.positions import Path
from index.values.values import Value


class Event(enum.Enum):
    """What a callback is told about its captures."""

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
