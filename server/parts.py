"""What features keep in a daemon and in its spaces.  Each part has a key, so the core names no feature.

>>> GREETING = PartKey[str]("greeting")
>>> parts = Parts()
>>> parts.add(GREETING, "hello"); parts[GREETING]
'hello'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from index.values.values import Value
from relay.following.polling import Polled
from relay.log.log import Log
from relay.log.notes import Notes
from relay.store.group_writer import GroupWriter
from server.config.rights import Permit

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


# -- on disk ------------------------------------------------------------------------------------------


class Opened(NamedTuple):
    """What is on disk, opened to be written."""

    lead: Callable[[], None]
    """Begins to write it."""
    close: Callable[[], None]


class DiskPart:
    """What a feature has on disk beside the logs of spaces; it is led and followed with ``main``.

    What it does not define does nothing, as in a daemon without such a feature.
    """

    @property
    def following(self) -> Polled | None:
        """What reads it on, while another daemon leads."""
        return None

    @property
    def writer(self) -> GroupWriter[Any] | None:
        """What writes it, while this daemon leads."""
        return None

    def prepare(self) -> Opened:
        """Opens it to be written; blocks."""
        return Opened(lambda: None, lambda: None)

    def follow(self) -> None:
        """Opens it to be read on."""

    def closing(self) -> Callable[[], None]:
        """Returns what closes the files that are open now."""
        return lambda: None

    def hint_with(self, hint: Callable[[], None] | None) -> None:
        """Sets what tells followers that there is more on disk; None while there are none."""


# -- in a space ---------------------------------------------------------------------------------------
#
# Always: a part is made before its space leads or follows; where the space calls it, it raises nothing but
# what ``report`` says.

Awaited: TypeAlias = tuple[str, float, Value]
"""The owner of a session that may come back, its grace in seconds, and the pattern of one of its streams."""


Done: TypeAlias = "Sequence[tuple[str, tuple[int, ...]]]"
"""Groups with epoch, position and token of each delivery, as a turn has them."""


class Report(NamedTuple):
    """What a turn reports beside its actions: the notes that go to the log with it, and what follows at once
    when it is committed."""

    notes: Notes = ()
    committed: Callable[[], None] = lambda: None


class SpaceTask(NamedTuple):
    """What runs while a space is led; begun again after a defect in it (``keep``)."""

    name: str
    """For the line about a defect, in the plural."""
    run: Callable[[], Awaitable[None]]


class SpacePart:
    """One part of a space; what it does not define does nothing."""

    is_busy = False
    """False while it need not hear what is on disk and which sessions end; each group of epochs asks."""

    def lead(self, log: Log, *, was_clean: bool, awaited: Sequence[Awaited]) -> None:
        """Takes up what the log has, whose state the space has; called for each term.

        ``was_clean`` if all sessions had ended with the log, ``awaited`` are those that may come back.
        """

    def after_group(self) -> None:
        """Looks at what the epochs that are on disk now bring."""

    def report(self, done: Done, permit: Permit, principal: object) -> Report | None:
        """Returns what it makes of what a turn reports as done, and None if that is not for this part.

        Raises ``Refused`` for all of it.  Nothing may come between this and the commit of the turn.
        """

    def session_back(self, owner: str) -> None:
        """Notes that a session of an earlier daemon has all its streams again, or will not have them."""

    def session_ended(self, owner: str, *, blame: bool) -> None:
        """Gives back what a session had; with ``blame`` it has failed."""

    def relimit(self) -> None:
        """Takes the limits that the space has now."""

    def tasks(self) -> Iterable[SpaceTask]:
        """Returns what runs while the space is led."""
        return ()

    def clear(self) -> None:
        """Counts nothing any more for any account, and states nothing: another daemon leads the space."""

    def used(self) -> int:
        """Returns about how many bytes of memory the part has in use."""
        return 0
