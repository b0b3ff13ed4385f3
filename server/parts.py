"""What features keep in a daemon, each under a key of its own, so that the core names none of them.

>>> GREETING = PartKey[str]("greeting")
>>> parts = Parts()
>>> parts.add(GREETING, "hello"); parts[GREETING]
'hello'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")


class PartKey(Generic[T]):
    """A key."""

    def __init__(self, name: str) -> None:
        """The memory of the part is shown under this name."""
        self.name: Final = name


class Parts:
    """The parts of one daemon."""

    def __init__(self) -> None:
        self._values: Final[dict[PartKey[Any], object]] = {}
        self._sizes: Final[dict[str, Callable[[], int]]] = {}

    def add(self, key: PartKey[T], value: T, size: Callable[[], int] | None = None) -> None:
        """Adds a part once; ``size`` returns about how many bytes of memory it has in use."""
        assert key not in self._values and key.name not in self._sizes, key.name
        self._values[key] = value
        if size is not None:
            self._sizes[key.name] = size

    def __getitem__(self, key: PartKey[T]) -> T:
        """Returns a part; ``KeyError`` if the daemon does not have it."""
        return self._values[key]  # type: ignore[return-value]  # as ``add`` was given it

    def get(self, key: PartKey[T]) -> T | None:
        """Returns a part; None if the daemon does not have it."""
        return self._values.get(key)  # type: ignore[return-value]  # as above

    def sizes(self) -> Counter[str]:
        """Returns about how many bytes of memory each part has in use."""
        return Counter({name: size() for name, size in self._sizes.items()})
