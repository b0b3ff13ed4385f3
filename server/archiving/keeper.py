"""The archive of a daemon: a process archives the spaces that it leads, and it reads all archived epochs.

Always: a log notes that an epoch is archived only after the process has read it back; a store that is away
stops neither the daemon nor a start; while it is away the log keeps what is not archived, within its bounds.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import trio

from dataspace.errors import Closed, DataspaceError
from dataspace.wire.features import MAIN
from relay.archive.archive import Archive, ArchivePlace
from relay.archive.figures import ArchiveFigures, figures_of
from relay.archive.topics.past import TopicArchive
from relay.log.log import Log
from relay.objects.objects import Objects
from relay.objects.opening import open_objects
from relay.store.address import StoreAddress
from relay.store.errors import LogFailed
from relay.topics.steps import StepLog
from server.archiving.child import Orders
from server.archiving.erasures import Erasures
from server.children import keep_running, running
from server.config.model import Config
from server.parts import PartKey
from server.pauses import Pauses
from server.spaces.keeping import DAEMON, keep
from server.spaces.space import HostedSpace
from server.topics.durable import DurableTopics

logger = logging.getLogger("dataspace")

LOOK_SECONDS: Final = 1.0
"""How often it looks which spaces this daemon leads."""

RENEW_SECONDS: Final = 10.0
"""How often a daemon that follows looks what is archived, and an archive that was away is tried again."""

LED_SECONDS: Final = 60.0
"""The same for a daemon that leads; the process reports ranges at once, but knows no erasures."""

PAUSES: Final = (1.0, 60.0, 60.0)
"""Seconds until the process is started again: twice as many each time, between the first two; as few as at
first where it has run for longer than the third."""


@dataclass(frozen=True, slots=True)
class ArchiveLag:
    """How far the archive of a space is behind its log: epochs on disk that it lacks, the age of its newest
    epoch in seconds if it lacks any, whether archiving fails now, how many completed epochs of durable
    topics, which stand with ``main``, their archives lack.

    Then how many erasures wait, when something was erased last (microseconds since 1970, 0 for never), how
    many ranges and bytes the archive has, and how many of its ranges wait to be merged.
    """

    epochs: int
    seconds: float
    fails: bool
    topic_epochs: int = 0
    erasures: int = 0
    erased_at: int = 0
    ranges: int = 0
    bytes: int = 0
    to_merge: int = 0


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """What the process said last about a space: its newest archived epoch and the time of that in
    microseconds, the version of the archive, and why nothing is archived, or merged, now, if so."""

    upto: int = 0
    until: int = 0
    version: int = 0
    error: str = ""
    merge_error: str = ""


class ArchiveKeeper:
    """The archives of the spaces of a daemon, and the process that writes them."""

    def __init__(
        self,
        config: Config,
        spaces: Callable[[], Collection[HostedSpace]],
        topics: DurableTopics | None = None,
    ) -> None:
        """``spaces`` returns the spaces that the daemon has by then; ``topics`` are lent their archives."""
        assert config.archive.place is not None  # else there is nothing to keep
        self.place: Final = str(config.archive.place)
        self._config = config
        self._spaces = spaces
        self._objects: Objects | None = None
        self._states: dict[str, ArchiveState] = {}
        self._figures: dict[str, ArchiveFigures] = {}
        self._topics = topics
        self._topics_error = ""
        self.erasures: Final = Erasures()
        if topics is not None:
            topics.lend = self._lend

    def state(self, space: str) -> ArchiveState:
        """Returns the state of a space's archive."""
        return self._states.get(space, ArchiveState())

    def status(self, hosted: HostedSpace, now: int) -> dict[str, object]:
        """Returns what ``dataspace status`` shows of an archive.

        ``behind_seconds`` is the age of the newest archived epoch, if a newer one is on disk; ``now`` and
        ``erased_at`` are in microseconds.
        """
        state, archive, lag = self.state(hosted.name), hosted.log.archive, self._lag(hosted, now)
        return {
            "place": self.place,
            "oldest": archive.oldest if archive is not None and archive.upto else 0,
            "held_from": hosted.log.held_from,
            "upto": hosted.commits.durable - lag.epochs,
            "version": state.version,
            "behind_epochs": lag.epochs,
            "behind_seconds": lag.seconds,
            "topics_behind_epochs": lag.topic_epochs,
            "ranges": lag.ranges,
            "bytes": lag.bytes,
            "ranges_to_merge": lag.to_merge,
            "erasures_waiting": lag.erasures,
            "erased_at": lag.erased_at,
            "error": state.error or self._topics_error_of(hosted),
            "merge_error": state.merge_error,
        }

    def lags(self, now: int) -> dict[str, ArchiveLag]:
        """Returns how far the archive of each space is behind; ``now`` is in microseconds."""
        return {hosted.name: self._lag(hosted, now) for hosted in self._spaces()}

    def _lag(self, hosted: HostedSpace, now: int) -> ArchiveLag:
        state, archive = self.state(hosted.name), hosted.log.archive
        behind = max(0, hosted.commits.durable - max(state.upto, 0 if archive is None else archive.upto))
        seconds = max(0.0, (now - state.until) / 1e6) if behind and state.until else 0.0
        fails = bool(state.error or self._topics_error_of(hosted))
        topics = self._topics_behind() if hosted.name == MAIN else 0
        figures = self._figures.get(hosted.name, ArchiveFigures())
        waiting, erased_at = self.erasures.waiting(hosted.name), figures.erased_at
        sizes = figures.ranges, figures.bytes, figures.due
        return ArchiveLag(behind, seconds, fails, topics, waiting, erased_at, *sizes)

    def _topics_behind(self) -> int:
        """Returns how many completed epochs of durable topics are on disk, and in no archive."""
        step_logs = [] if self._topics is None else self._topics.step_logs()
        return sum(
            [max(0, each.completed_durable - max(each.archived[1], each.oldest - 1)) for each in step_logs]
        )

    def _topics_error_of(self, hosted: HostedSpace) -> str:
        """Returns why topics are not archived, which stand with ``main``."""
        return self._topics_error if hosted.name == MAIN else ""

    async def run(self) -> None:
        """Archives and reads archives, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep, DAEMON, "archives that are read", self._keep_reading)
            nursery.start_soon(keep, DAEMON, "archiving", self._keep_process)

    # -- reading --------------------------------------------------------------------------------------

    async def _keep_reading(self) -> None:
        """Lends each log its archive, and keeps that up to date where another daemon leads."""
        led = trio.current_time()
        while True:
            if is_due := trio.current_time() >= led + LED_SECONDS:
                led = trio.current_time()
            for hosted in self._spaces():
                if is_due or hosted.log.archive is None or not hosted.leads:
                    await self._renew(hosted)
            with trio.move_on_after(RENEW_SECONDS):
                while all(hosted.log.archive is not None for hosted in self._spaces()):  # noqa: ASYNC110  another log may come
                    await trio.sleep(LOOK_SECONDS)
            await trio.sleep(LOOK_SECONDS)

    async def _renew(self, hosted: HostedSpace) -> None:
        log = hosted.log
        try:
            archive = log.archive
            if not isinstance(archive, Archive):
                archive = await trio.to_thread.run_sync(self._opened, hosted)
            await trio.to_thread.run_sync(archive.renew)
            if archive.manifest.version != self._figures.get(hosted.name, ArchiveFigures()).version:
                self._figures[hosted.name] = await trio.to_thread.run_sync(figures_of, archive)
        except DataspaceError as error:
            self._fails(hosted.name, str(error))
            return
        log.archive = archive

    def _opened(self, hosted: HostedSpace) -> Archive:
        return Archive(self._opened_objects(), ArchivePlace(hosted.name, hosted.identity))

    def _opened_objects(self) -> Objects:
        self._objects = self._objects or open_objects(self.place)
        return self._objects

    def _lend(self, step_log: StepLog) -> None:
        """Lends a topic its archive, as that is now; blocks."""
        if step_log.archive is None:
            place = ArchivePlace(MAIN, self._space(MAIN).identity, step_log.number)
            step_log.archive = TopicArchive(Archive(self._opened_objects(), place))
        step_log.archive.renew()

    def _space(self, name: str) -> HostedSpace:
        return next(each for each in self._spaces() if each.name == name)

    # -- the process ----------------------------------------------------------------------------------

    async def _keep_process(self) -> None:
        name, pauses = "the archiving process", Pauses(*PAUSES)
        await keep_running(name, self._run_process, pauses, event="archiving-ended")

    async def _run_process(self) -> trio.Process:
        """Runs the process, once this daemon leads a space, until it ends; ends it when cancelled."""
        while not any(hosted.leads for hosted in self._spaces()):  # noqa: ASYNC110  another daemon may end
            await trio.sleep(LOOK_SECONDS)
        async with running(
            [sys.executable, "-m", "dataspace", "log", "archive", "-", "--for-daemon"],
            self._config.stop_seconds / 2,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # so that Ctrl-C ends the daemon, which ends it
        ) as process:
            assert process.stdin is not None and process.stdout is not None  # as just asked for
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._order, process.stdin)
                await self._listen(process.stdout)
                nursery.cancel_scope.cancel()
            await process.wait()  # before the block would terminate it: it has closed its output, and ends
        return process

    async def _order(self, stdin: trio.abc.SendStream) -> None:
        """Tells the process which spaces this daemon leads, whenever that changes."""
        previous: Orders | None = None
        with suppress(trio.BrokenResourceError):  # it has ended
            while True:
                orders = self._orders()
                if orders != previous:
                    await stdin.send_all(json.dumps(asdict(orders)).encode() + b"\n")
                    previous = orders
                await trio.sleep(LOOK_SECONDS)

    def _orders(self) -> Orders:
        config = self._config
        data, is_store = str(config.data), isinstance(config.data, StoreAddress)
        if isinstance(config.data, StoreAddress):
            data = config.data.text
        led = {hosted.name: hosted.term for hosted in self._spaces() if hosted.leads}
        clusters = {label: list(fields) for label, fields in config.archive.clusters.items()}
        place = data, is_store, self.place
        erasures = self.erasures.orders(led)
        return Orders(*place, led, config.archive.seconds, config.archive.delta, clusters, erasures)

    async def _listen(self, stdout: trio.abc.ReceiveStream) -> None:
        rest = b""
        async for some in stdout:
            *lines, rest = (rest + some).split(b"\n")
            for line in lines:
                await self._take(json.loads(line))

    async def _take(self, news: dict[str, Any]) -> None:
        """Notes what the process says of a space."""
        name = news["space"]
        if "erasure" in news:
            self.erasures.on_answer(news)
            return
        if "topic" in news:
            await self._take_topic(news)
            return
        if "error" in news:
            self._fails(name, news["error"])
            return
        if news["merge_error"] not in ("", self.state(name).merge_error):
            logger.warning("ranges of the archive of space %s are not merged: %s", name, news["merge_error"])
        numbers = news["upto"], news["until"], news["version"]
        errors = news.get("error_stays", ""), news["merge_error"]
        self._states[name] = ArchiveState(*numbers, *errors)
        for hosted in self._spaces():
            if hosted.name == name and hosted.leads and hosted.term == news["term"]:
                self._warn_of_another(name, hosted.leading.log, news)
                await self._note(hosted.leading.log, news["upto"], news["segment"], news["archive"])
                await self._renew(hosted)

    async def _take_topic(self, news: dict[str, Any]) -> None:
        """Notes what the process says of a durable topic.  An archive is lent before anything goes."""
        topics = self._topics
        if "error" in news:
            self._topics_fail(news["error"])
            return
        main = self._space(news["space"])
        if topics is None or not main.leads or main.term != news["term"] or not topics.is_open:
            return
        step_log = next((each for each in topics.step_logs() if each.number == news["topic"]), None)
        now = news["upto"], news["until"]
        if step_log is None:
            return
        try:
            if now != step_log.archived or not step_log.archive_seen:
                await trio.to_thread.run_sync(self._lend, step_log)
                await topics.writer.note_archived(step_log, *now)
        except Closed:
            return
        except DataspaceError as error:
            self._topics_fail(str(error))
            return
        self._topics_error = ""

    def _topics_fail(self, error: str) -> None:
        if self._topics_error != error:
            logger.warning("a topic is not archived: %s", error, extra={"event": "archive-failed"})
        self._topics_error = error

    async def _note(self, log: Log, upto: int, segment: int, archive: str) -> None:
        """Notes what is archived in the log; without room there, what is archived next will be noted."""
        try:
            await trio.to_thread.run_sync(log.note_archived, upto, segment, archive, self.place)
        except LogFailed as failure:
            if not failure.full:
                raise

    def _warn_of_another(self, name: str, log: Log, news: dict[str, Any]) -> None:
        """Says once that the archive is another one than before, and where it begins."""
        if log.archived_in not in ("", news["archive"]):
            first = news["first"] if news["upto"] else log.held_from
            logger.warning(
                "space %s has another archive, %s, which begins with epoch %d; %s had epochs up to %d",
                *(name, self.place, first, log.archive_place, log.archived),
                extra={"event": "archive-changed"},
            )

    def _fails(self, name: str, error: str) -> None:
        if self.state(name).error != error:
            logger.warning("space %s is not archived: %s", name, error, extra={"event": "archive-failed"})
        self._states[name] = replace(self.state(name), error=error)


ARCHIVING: Final = PartKey[ArchiveKeeper]("archiving")
"""There where an archive is configured."""
