"""Windows: what rules over time need of the log of a space.

Always: the log keeps the epochs that the longest window in use needs, within ``log.reader_size``; rules of
a space that starts to lead go on as if nothing had interrupted them, as far as the log goes back.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from time import monotonic_ns
from typing import Final

import trio

from dataspace.errors import Closed, Refused
from dataspace.instants import GRID, NEVER
from dataspace.kernel.changes import Epoch
from dataspace.kernel.defects import until_made
from dataspace.kernel.rule_facts import is_rule, rules_of
from dataspace.kernel.space import MOST_INSTANTS, Space
from dataspace.kernel.state import SteadyClock
from dataspace.rules.engine.rebuilding import PastEpoch, forms_of, longest, rebuild
from dataspace.rules.engine.texts import Pair
from index.values.values import Value
from relay.log.log import Log
from relay.log.notes import DERIVED, Note
from relay.log.replay import state_at
from relay.log.retention import Retention
from relay.log.writer import GroupCommit
from relay.store.errors import LogFailed
from server.lane import Lane

logger = logging.getLogger("dataspace")

LONGEST_PAUSE: Final = 60.0
"""Seconds after which the clock is looked at again, at the latest: a machine may have been suspended."""


class RuleTurns:
    """Makes the turns that rules need: for ``next``, and at instants at which rows come or go by time alone.

    Where many rows come or go at one instant the turn is made in slices of the ``lane``, for which turns of
    clients wait.  A turn that cannot wait does the rest of it at once.

    ``wall`` gives the time of the machine.  ``turn`` makes one at a time; ``failed`` is called where another
    one fails.
    """

    def __init__(
        self,
        space: Space,
        wall: Callable[[], int],
        turn: Callable[[int], None],
        failed: Callable[[], None],
        lane: Lane,
    ) -> None:
        self._space = space
        self.times: Final = space.rules.times
        self._lane = lane
        self._is_running = False
        self._failures = 0  # in a row
        self.settled: trio.Event | None = None
        """An event at the end of the turn that is being made in slices; None without one."""
        self.now: Final = SteadyClock(space, wall, monotonic_ns).now
        """The time of the next epoch, in microseconds since 1970."""
        self._turn = turn
        self._failed = failed
        self.due = trio.Event()
        """Set when there is a turn to make, or one at an earlier instant than is ``planned``."""
        self.planned = 0
        """The instant that is waited for."""

    async def run(self, wait_room: Callable[[], Awaitable[None]]) -> None:
        """Makes them in between the turns of clients, until cancelled."""
        self._is_running = True
        try:
            while True:
                await self._run_fenced(wait_room)
        finally:
            self._is_running = False
            self._settle()

    async def _run_fenced(self, wait_room: Callable[[], Awaitable[None]]) -> None:
        """Runs until a defect of the rules: it suspends texts if it comes again, and ends nothing."""
        try:
            await self._run(wait_room)
        except (Refused, LogFailed, Closed):
            raise
        except Exception as error:  # a fence: what works for rules of clients must not end the daemon
            if self._space.damage is not None:
                raise
            self._space.rules.defects.choose(error, self._failures)
            self._failures += 1
            await trio.sleep(min(self._failures - 1, LONGEST_PAUSE))

    async def _run(self, wait_room: Callable[[], Awaitable[None]]) -> None:
        rules = self._space.rules
        while True:
            self.due = trio.Event()
            while rules.pending or rules.due <= self.now():
                late = self.now() - rules.due
                if self.has_much():
                    await self._make_in_slices()
                self._turn(self._step())
                if late >= 0:
                    self._space.timed_late = late
                self._failures = 0
                await wait_room()
                await trio.lowlevel.checkpoint()
            self.planned = rules.due
            with trio.move_on_after(_pause(rules.due - self.now())):
                await self.due.wait()
            self.planned = 0

    def has_much(self) -> bool:
        """True if a turn that is due by time alone is made in slices; ``wait_settled`` waits for its end."""
        if self.settled is not None:
            return True
        if not (self._is_running and self.times.is_much_due and self.times.next <= self.now()):
            return False
        self.settled = trio.Event()
        self.due.set()
        return True

    async def wait_settled(self) -> None:
        """Returns once no turn is made in slices."""
        while self.settled is not None:
            await self.settled.wait()

    def _settle(self) -> None:
        settled, self.settled = self.settled, None
        if settled is not None:
            settled.set()

    async def _make_in_slices(self) -> None:
        try:
            async with self._lane.work(self._space.name) as work:
                if self.times.next <= self.now():  # else another turn has made it
                    await work.go_on(self._space.making_instant())
                await work.finish()
        except BaseException:
            self._failed()
            raise
        finally:
            self._settle()

    def _step(self) -> int:
        """Returns the time of the next turn: one instant after the other, so that other tasks run in between.

        After a long pause the space chooses instants among them; that is one step.
        """
        now, due = self.now(), self._space.rules.due
        return due if now - MOST_INSTANTS * GRID < due <= now else now

    def until_now(self) -> int:
        """Makes the turns that are due by time alone, and returns the time up to which they are made.

        A turn of that time finds the present facts unchanged.
        """
        try:
            return self._space.until(self.now())
        except BaseException:
            self._failed()
            raise


def _pause(micros: int) -> float:
    """Returns how many seconds to wait for an instant; clocks may be set in the meantime."""
    if micros > NEVER // 2:
        return math.inf
    return min(max(micros, 0) / 1_000_000, LONGEST_PAUSE)


def rebuild_windows(space: Space, log: Log, commits: GroupCommit | None = None) -> None:
    """Rebuilds the windows of a space's rules from its log.

    From now on ``commits`` note which messages windows do not see, and snapshots have the times that epochs
    lack.  Rules that cannot be rebuilt are suspended, with the reason; the daemon starts all the same.
    O(epochs in the longest window), and O(log) if a rule binds the times of facts and no snapshot has them.
    """
    if commits is not None:
        commits.derived, commits.past = partial(derived_in, space), partial(past_of, space)
    if not space.rules.awake or not space.limits.rules or space.rules.times.forms:
        return  # the most spaces have no rules, and are not searched for some

    def failed(error: Exception, attempt: int) -> None:
        logger.error(
            "rules over time of space %s cannot be rebuilt: this is a defect", space.name, exc_info=error
        )
        space.rules.times.clear()
        if attempt:  # else it may not come again
            space.rules.defects.refuse(_timed(space), error)

    until_made(lambda: _rebuild(space, log), failed, last=lambda: None)  # what is remembered is lost then


def _timed(space: Space) -> list[Pair]:
    """Returns names and texts of the rules over time, and of rules that cannot be read for a defect."""
    rules, found = space.rules, list[Pair]()
    for fact in space.index.values():
        if is_rule(fact):
            try:
                is_timed = bool(forms_of([fact], rules.bounds.window, rules.functions))
            except Exception:  # noqa: BLE001  # the same fence
                is_timed = True
            found += rules_of([fact]) if is_timed else ()
    return found


def _rebuild(space: Space, log: Log) -> None:
    rules = space.rules
    known = [
        fact for fact in space.index.values() if is_rule(fact) and fact.fields not in rules.defects.refused
    ]
    forms = forms_of(known, rules.bounds.window, rules.functions)
    if not forms:
        return
    past = log.past()
    after = _before(log, space, longest(forms) if past is None else max(form.span for form in forms))
    if past is not None:
        after = max(log.oldest - 1, min(after, past[0]))
    since = log.time_of(after)  # also of the newest epoch that is gone
    if not since:
        first = next(iter(log.read(after)), None)
        since = 0 if first is None else first.time
    defects = rebuild(
        rules.times,
        state_at(log, after),
        since,
        _past(log, after),
        bounds=rules.bounds,
        functions=rules.functions,
        past=past,
        refused=rules.defects.refused,
    )
    rules.defects.refused.update(defects)
    logger.info(
        "space %s: %d rows of rules over time, from the epochs after %d",
        *(space.name, rules.times.rows, after),
    )


def past_of(space: Space) -> Iterator[tuple[Value, ...]] | None:
    """Returns what a snapshot has to say of the past of rules; None where there are none over time."""
    times = space.rules.times
    return times.past(is_half=space.is_making) if times.forms else None


def derived_in(space: Space, epoch: Epoch) -> int:
    """Returns how many messages at the end of an epoch are of rules and flows, if there are windows."""
    messages, count = space.rules.times.sent
    return count if messages is epoch.messages and space.rules.times.forms else 0


def _before(log: Log, space: Space, span: int | None) -> int:
    """Returns the epoch from whose state on the log is read for windows of a span; None for all of it."""
    if span is None:
        return log.oldest - 1
    now = space.time // GRID * GRID  # windows end at instants
    try:
        return max(log.epoch_at(max(0, now - span)), log.oldest - 1)
    except Refused:
        return log.oldest - 1


def _past(log: Log, after: int) -> Iterator[PastEpoch]:
    """Yields the epochs behind a place, without messages of rules and flows."""
    last: Epoch | None = None
    for segment in log.segments(after, log.last):
        for item in segment.items():
            if isinstance(item, Note):
                if item.kind == DERIVED and last is not None:
                    (count,) = item.fields
                    assert isinstance(count, int)  # as ``derived_messages`` makes it
                    last = last._replace(messages=last.messages[:-count])
            elif item.number > after and not item.silent:
                if last is not None:
                    yield last.number, last.time, last.added, last.messages, last.removed
                last = item
    if last is not None:
        yield last.number, last.time, last.added, last.messages, last.removed


def with_windows(retention: Retention, space: Space) -> Retention:
    """Returns a retention that keeps what the windows in use need."""
    spans = [form.of.span for form in space.rules.times.forms.values()]
    longest_span = max(spans, default=0)
    return replace(retention, windows=(longest_span + GRID) / 1_000_000 if longest_span else 0.0)
