"""The newest place of each log that a daemon has seen, which a store must not fall short of.

A failover of the database to a copy that lacks commits takes acknowledged turns away, and the term of the
leader that wrote them may have gone too.  So each daemon remembers what it has written or read: as long as
its process lasts, and in a state directory if it has one.

Always: a place was in the store when it was noted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from relay.store.ports import AcknowledgedMark
from relay.store.sqlite.acknowledged import AcknowledgedFile


class SeenPlaces:
    """The newest places that one process has seen, by space."""

    def __init__(self, directory: Path | None) -> None:
        self._directory: Final = directory
        self._marks: dict[str, AcknowledgedMark] = {}

    def of(self, space: str) -> SeenPlace:
        """Returns the place of a log, to note newer ones.  Raises ``LogFailed`` if its file is unusable."""
        if self._directory is None:
            return SeenPlace(self._marks, space, None)
        self._directory.mkdir(parents=True, exist_ok=True)
        return SeenPlace(self._marks, space, AcknowledgedFile(self._directory / f"{space}.acknowledged"))


class SeenPlace:
    """The newest place of one log."""

    def __init__(self, marks: dict[str, AcknowledgedMark], space: str, file: AcknowledgedFile | None) -> None:
        self._marks: Final = marks
        self._space: Final = space
        self._file: Final = file
        if file is not None and space not in marks:
            marks[space] = file.mark

    @property
    def mark(self) -> AcknowledgedMark:
        """Returns the newest place; an empty mark if none was seen."""
        return self._marks.get(self._space, AcknowledgedMark())

    def write(self, mark: AcknowledgedMark, *, sync: bool = False) -> None:
        """Keeps a newer place, on disk if asked to, or within a second."""
        self._marks[self._space] = mark
        if self._file is not None:
            self._file.write(mark, sync=sync)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
