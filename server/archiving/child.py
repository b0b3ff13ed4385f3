"""The process that archives for a daemon: it reads the logs beside it, and says what is archived.

It is a process of its own so that compressing and writing take nothing from the daemon's loop.  A line on its
standard input, a JSON object, says where the logs are, which spaces to archive and under which terms; a new
line replaces the one before.  On its standard output it says, a JSON object to a line, up to where an archive
is now, or why it is not.  It ends with its standard input.

Always: an epoch that it says is archived was read back, and is on disk in the log.  An error of one space
stops that space alone, which is tried again with growing pauses; none ends the process.
"""

from __future__ import annotations

import json
import math
import os
import queue
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from dataspace.codec import unpack
from dataspace.errors import DataspaceError, Refused
from dataspace.wire.features import MAIN
from relay.archive.archive import Archive, ArchivePlace
from relay.archive.archiver import Archiver, RangeSizes, archived_segment
from relay.archive.erasure.erasing import Erasable, Erased, erase_all
from relay.archive.merging import Merger, MergeRules
from relay.archive.orphans import collect, erased_objects, finish
from relay.archive.tables import DeltaTables, error_of_tables
from relay.archive.topics.archiving import TopicArchiver
from relay.archive.writing import NotThisArchive
from relay.log.reader import LogReader
from relay.objects.objects import Objects, StoreFailed
from relay.objects.opening import open_objects
from server.archiving.erasures import ErasureOrder
from server.archiving.logs import read_log, read_topics
from server.archiving.topics import TopicsArchiver
from server.pauses import Pauses

LOOK_SECONDS: Final = 1.0
"""How often it looks for new segments."""

PAUSES: Final = (1.0, 60.0)
"""Seconds until a space is tried again after an error: twice as many each time, between these."""

COLLECT_SECONDS: Final = 3600.0
"""How often objects that no manifest names are looked for."""

NICE: Final = 10


@dataclass(frozen=True, slots=True)
class Orders:
    """Where the logs and the archive are, the terms of the spaces to archive, when ranges are closed, and how
    merged ranges are ordered.

    ``delta`` if Delta tables are kept as well.  ``erasures`` are still to be answered.
    """

    data: str
    is_store: bool
    prefix: str
    spaces: dict[str, int]
    seconds: float
    delta: bool = False
    clusters: Mapping[str, Sequence[int]] = field(default_factory=dict)
    erasures: Sequence[ErasureOrder] = ()

    @property
    def place(self) -> Path | str:
        """Returns the place of the logs, as commands take it."""
        return self.data if self.is_store else Path(self.data)


def keep_archiving() -> int:
    """Archives as the standard input says, until that ends; returns the exit code."""
    os.nice(NICE)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), name="orders", daemon=True).start()
    keeper = _Archivers()
    try:
        while line := _newest(lines, LOOK_SECONDS):
            if line != _NOTHING:
                keeper.obey(orders_of(line))
            keeper.archive_due()
    except KeyboardInterrupt:
        pass
    finally:
        keeper.close()
    return 0


def orders_of(line: str) -> Orders:
    """Returns the orders that a line has."""
    said = Orders(**json.loads(line))
    return replace(said, erasures=[ErasureOrder(*each) for each in said.erasures])


_NOTHING: Final = "\n"


def _read_lines(into: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        into.put(line)
    into.put("")


def _newest(lines: queue.SimpleQueue[str], patience: float) -> str:
    """Returns the newest order, ``_NOTHING`` if there is no new one in time, an empty text after the last."""
    try:
        line = lines.get(timeout=patience)
        while line and not lines.empty():
            line = lines.get()
    except queue.Empty:
        return _NOTHING
    return line


class _Archivers:
    """The archivers of each space."""

    def __init__(self) -> None:
        self._orders = Orders("", False, "", {}, 0.0)
        self._spaces: dict[str, list[_Tried]] = {}

    def obey(self, orders: Orders) -> None:
        """Begins and ends the archiving of spaces."""
        held = self._orders
        others = (orders.prefix, orders.place, orders.clusters) != (held.prefix, held.place, held.clusters)
        objects = open_objects(orders.prefix)
        for name in [*self._spaces]:
            if others or orders.spaces.get(name) != self._spaces[name][0].term:
                self._close(self._spaces.pop(name))
        self._orders = orders
        for name, term in orders.spaces.items():
            if name not in self._spaces:
                kinds = (_Space, _Topics) if name == MAIN else (_Space,)
                self._spaces[name] = [each(name, term, orders, objects) for each in kinds]
            for each in self._spaces[name]:
                each.order(orders)

    def archive_due(self) -> None:
        """Archives what is due."""
        for tried in self._spaces.values():
            for each in tried:
                each.archive_due()

    def close(self) -> None:
        """Closes the logs; the next process reads again what is not archived yet."""
        for tried in self._spaces.values():
            self._close(tried)

    def _close(self, tried: list[_Tried]) -> None:
        for each in tried:
            each.close()


class _Tried(ABC):
    """Archivers of a space, made anew after an error."""

    def __init__(self, name: str, term: int, orders: Orders, objects: Objects) -> None:
        self.name: Final = name
        self.term: Final = term
        self._orders = orders
        self._objects = objects
        self._held = ExitStack()
        self._pauses = Pauses(*PAUSES)
        self._next = 0.0
        self._failed = ""
        """Why archiving fails; empty from the end of the next attempt that does not."""

    def order(self, orders: Orders) -> None:
        """Takes the newest orders."""
        self._orders = orders

    def archive_due(self) -> None:
        """Reads on, and archives what is due; says what came of it."""
        if time.monotonic() < self._next:
            return
        try:
            self._look()
            self._pauses.forget()
            if self._failed:
                self._failed = ""
                self._say_recovered()
        except Exception as error:  # noqa: BLE001  whatever the error of one space is, the others go on
            self.close()
            self._next = time.monotonic() + self._pauses.next()
            if not (isinstance(error, Refused) and error.code == "epoch-gone"):
                self._failed = error_text(error)
                self._say_failed(error)

    def _say_failed(self, error: Exception) -> None:
        _say({"space": self.name, "error": error_text(error), "code": getattr(error, "code", "failed")})

    @abstractmethod
    def _say_recovered(self) -> None:
        """Says that archiving no longer fails."""

    @abstractmethod
    def _look(self) -> None:
        """Reads on, and archives what is due."""

    def close(self) -> None:
        """Closes the logs and journals that are read."""
        self._held.close()
        self._held = ExitStack()


class _Space(_Tried):
    """The archiver of the log of one space."""

    _archiver: Archiver | None = None
    _collected = -math.inf
    _finished = 0
    """The version of the newest erasure after which all was deleted."""
    _tables: DeltaTables | None = None
    _tables_of = 0
    """The version of the archive that the tables have."""
    _merged = 0
    _merges_at = 0.0 if find_spec("pyarrow") else math.inf
    _merge_error = ""
    _answered: frozenset[int] = frozenset()
    """Numbers of erasures in the newest orders that are done."""

    def order(self, orders: Orders) -> None:
        super().order(orders)
        self._answered &= {each.number for each in orders.erasures}

    def _look(self) -> None:
        archiver = self._archiver or self._begun()
        while archiver.read():
            pass
        while archiver.is_due(time.time_ns() // 1000):
            if archiver.close() is None:
                break
            self._say_archived(archiver)
            while archiver.read():
                pass
        self._finish_erasures(archiver.archive)
        self._erase(archiver)
        self._merge(archiver)
        if self._orders.delta and archiver.archive.manifest.version != self._tables_of:
            self._keep_tables(archiver.archive)
        if time.monotonic() > self._collected + COLLECT_SECONDS:
            self._collected = time.monotonic()
            collect(archiver.archive)

    def _keep_tables(self, archive: Archive) -> None:
        """Brings the Delta tables up to date; their error stops no archiving, and is reported once."""
        version = archive.manifest.version
        if self._tables is None or self._tables.archive is not archive:
            self._tables = DeltaTables(archive)
        if error := error_of_tables(self._tables):
            print(f"dataspace: Delta tables of space {self.name} are not kept: {error}", file=sys.stderr)
        self._tables_of = version  # after an error: with the next range

    def _finish_erasures(self, archive: Archive) -> None:
        """Deletes what an erasure has left that was interrupted, here or in another process."""
        newest = max([each.version for each in erased_objects(archive)], default=0)
        if newest > self._finished:
            finish(archive)
            self._finished = newest

    def _erase(self, archiver: Archiver) -> None:
        """Erases what is ordered, all at once, before ranges are merged; archives what is concerned first."""
        due = [
            each
            for each in self._orders.erasures
            if each.space == self.name and each.number not in self._answered
        ]
        if not due:
            return
        if max([each.before for each in due]) > archiver.archive.manifest.until:
            while archiver.close() is not None:  # a range may have been cut
                while archiver.read():
                    pass
        wanted = [Erasable(unpack(bytes.fromhex(each.pattern)), each.before, each.by) for each in due]
        try:
            done = erase_all(archiver.archive, wanted)
            answers: list[dict[str, Any]] = [{"counts": _counts(each)} for each in done]
        except (StoreFailed, NotThisArchive, Refused, OSError):
            raise  # is tried again
        except Exception as error:  # noqa: BLE001  an erasure that cannot be done holds up nothing else
            answers = [{"error": error_text(error)} for _ in due]
        self._say_archived(archiver)
        for each, answer in zip(due, answers, strict=True):
            _say({"space": self.name, "erasure": each.number, **answer})
        self._answered |= {each.number for each in due}

    def _merge(self, archiver: Archiver) -> None:
        """Merges one run of ranges, if there is one; what cannot be merged does not stop archiving."""
        known = archiver.archive.manifest.version
        if time.monotonic() < self._merges_at or known == self._merged:
            return
        rules = MergeRules(clusters=self._orders.clusters)
        failed = self._merge_error
        try:
            new_range = Merger(archiver.archive, term=self.term, rules=rules).merge_due()
            self._merge_error = ""
            if new_range is None:
                self._merged = known
        except NotThisArchive:
            return  # another merged it, or the archiver will say what is wrong
        except Exception as error:  # noqa: BLE001  ranges that cannot be merged are archived all the same
            self._merges_at = time.monotonic() + COLLECT_SECONDS
            new_range, self._merge_error = None, error_text(error)
        if new_range is not None or self._merge_error != failed:
            self._say_archived(archiver)

    def _begun(self) -> Archiver:
        log = self._held.enter_context(read_log(self._orders.place, self.name))
        sizes = RangeSizes(seconds=self._orders.seconds)
        archiver = Archiver(log, self._objects, self.name, term=self.term, sizes=sizes)
        archiver.begin()
        check_not_emptied(log, archiver.archive, self._orders.prefix)
        self._archiver = archiver
        self._say_archived(archiver)
        return archiver

    def _say_archived(self, archiver: Archiver) -> None:
        archive = archiver.archive
        segment = archived_segment(archiver.log, archive)
        _say(
            {
                "space": self.name,
                "term": self.term,
                "archive": archive.manifest.archive,
                "version": archive.manifest.version,
                "first": archive.oldest,
                "upto": archive.upto,
                "until": archive.manifest.until,
                "segment": segment,
                "merge_error": self._merge_error,
                "error_stays": self._failed,
            }
        )

    def _say_recovered(self) -> None:
        if self._archiver is not None:
            self._say_archived(self._archiver)

    def close(self) -> None:
        self._archiver = None
        super().close()


class _Topics(_Tried):
    """The archivers of the durable topics, which are beside the log of ``main``."""

    _archiver: TopicsArchiver | None = None

    def _look(self) -> None:
        archiver = self._archiver or self._begun()
        if archiver is not None:
            archiver.archive_due(self._say_archived, self._say_failed)

    def _begun(self) -> TopicsArchiver | None:
        tables = self._held.enter_context(read_topics(self._orders.place))
        if tables is None:  # there was no topic yet
            self.close()
            return None
        with read_log(self._orders.place, self.name) as log:
            identity = log.identity
            archive = Archive(self._objects, ArchivePlace(self.name, identity))
            archive.refresh()
            check_not_emptied(log, archive, self._orders.prefix)
        sizes = RangeSizes(seconds=self._orders.seconds)
        self._archiver = TopicsArchiver(
            tables, self._objects, self.name, identity, term=self.term, sizes=sizes
        )
        return self._archiver

    def _say_archived(self, archiver: TopicArchiver) -> None:
        archive = archiver.archive
        said = {"space": self.name, "topic": archive.place.topic, "term": self.term}
        _say(said | {"upto": archive.upto, "until": archive.manifest.until})

    def _say_failed(self, error: Exception) -> None:
        said = {"space": self.name, "topic": 0, "error": error_text(error)}
        _say(said | {"code": getattr(error, "code", "failed")})

    def _say_recovered(self) -> None:
        """Says nothing: a topic that is archived again says so by itself."""

    def close(self) -> None:
        self._archiver = None
        super().close()


def check_not_emptied(log: LogReader, archive: Archive, place: str) -> None:
    """Raises ``NotThisArchive`` for an empty archive where there was one: its store may be away."""
    if log.archived and not archive.manifest.version and log.archive_place == place:
        raise NotThisArchive(
            f"{archive.shown} is empty, and had epochs up to {log.archived}: is another store mounted there? "
            "If they are gone for good, `dataspace log archive` begins a new archive there"
        )


def error_text(error: Exception) -> str:
    """Returns an error in words for an operator; of an unexpected error its class as well."""
    if isinstance(error, (DataspaceError, OSError)):
        return str(error)
    return f"{type(error).__name__}: {error!s:.500}"


def _counts(of: Erased) -> dict[str, Any]:
    """Returns the counts of an erasure as its answer has them."""
    said = asdict(of)
    if not said["tables_error"]:
        del said["tables_error"]
    return said


def _say(what: Mapping[str, Any]) -> None:
    print(json.dumps(what), flush=True)
