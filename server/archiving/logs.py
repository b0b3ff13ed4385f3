"""The logs of a home, to be read beside the daemon that writes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from dataspace.errors import UsageError
from relay.backup.backup import spaces_of
from relay.journal.reader import JournalReader
from relay.log.reader import LogReader
from relay.store.ports import TopicTables
from relay.store.sqlite.topics import SqliteTopics
from server.stores import log_in, spaces_in, topics_in


@contextmanager
def read_logs(place: Path | str, space: str | None = None) -> Iterator[dict[str, LogReader]]:
    """Lends the logs of a directory or of a store by their spaces, or the log of one space.

    Raises ``UsageError`` if there is none.
    """
    with ExitStack() as held:
        names = _spaces_at(place)
        if space is not None and space not in names:
            raise UsageError(
                f"there is no log of space {space!r} in {place}, but of {', '.join(names) or 'none'}"
            )
        if not names:
            raise UsageError(f"there is no log in {place}; give the daemon's directory with --data")
        wanted = names if space is None else [space]
        yield {each: held.enter_context(read_log(place, each)) for each in wanted}


@contextmanager
def read_log(place: Path | str, space: str) -> Iterator[LogReader]:
    """Lends the log of one space."""
    if isinstance(place, Path):
        with closing(LogReader.open(spaces_of(place)[space])) as log:
            yield log
        return
    with log_in(place, space) as (log, _):
        yield log


@contextmanager
def read_topics(place: Path | str) -> Iterator[TopicTables | None]:
    """Lends the tables of the durable topics of a directory or of a store; None if there are none."""
    if not isinstance(place, Path):
        with topics_in(place) as found:
            yield found
    elif not (place / JournalReader.FILE).exists():
        yield None
    else:
        with closing(SqliteTopics.read(place / JournalReader.FILE, place / JournalReader.MARK)) as tables:
            yield tables


def _spaces_at(place: Path | str) -> list[str]:
    return list(spaces_of(place)) if isinstance(place, Path) else spaces_in(place)
