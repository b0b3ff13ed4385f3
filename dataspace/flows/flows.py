"""Flows: operators wired into a graph, run tick by tick and stratum by stratum.

A flow is built by chaining stages (``flow.source("n").map(f).for_each(print)``), or by name, where a name may
be used before it is defined.  The first tick compiles it: the graph is cut at handoffs, ordered in strata and
refused if an input that blocks is part of a cycle.  Within a stratum items are pushed from operator to
operator as they come, so that the first output leaves before the last input was read.

Always: a tick takes what the sources hold when it begins, and nothing later; strata run in ascending order,
each until nothing moves in it; a flow in which a function raised is broken, and raises an error when run
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from dataspace.flows.blame import Blame
from dataspace.flows.fluent import FlowStage, end_of
from dataspace.flows.inputs import Facts, Incoming, Interval, Messages, Streamed
from dataspace.flows.operators import Emit, Operator, SourceOperator, nowhere
from dataspace.flows.results import Derived
from dataspace.flows.strata import Handoff, Stratum, drain
from dataspace.flows.wiring import Wiring
from index.errors import UsageError
from index.values.values import Value

MAX_LOOPED: Final = 10_000_000
"""Default limit of items that may pass round the cycles of a flow in one tick."""


@dataclass(frozen=True, slots=True)
class FlowStatistics:
    """Ticks that were run, items that operators hold, items that wait for the next tick."""

    ticks: int
    held: int
    waiting: int


class Flow(Wiring):
    """A graph of operators and its state.  Not safe for threads.

    ``tick`` and ``stratum`` are the numbers of the present ones, for functions that need them.
    """

    def __init__(self, *, max_looped: int = MAX_LOOPED) -> None:
        super().__init__()
        self.tick = 0
        self.stratum = 0
        self._max_looped = max_looped
        self._sources: list[SourceOperator] = []
        self._iterators: list[tuple[SourceOperator, Iterator[Any]]] = []
        self._strata: list[Stratum] = []
        self._forgetting: list[Operator] = []
        self._delayed: list[Handoff] = []
        self._broken = False
        self._blame = Blame()

    # -- building -------------------------------------------------------------------------------------

    def source(self, items: Iterable[Any] = (), *, name: str | None = None) -> FlowStage:
        """Adds a source: ``items`` in the first tick, and in later ticks the items that were ``put``."""
        source = SourceOperator()
        self._iterators.append((source, iter(items)))
        return self._fed("source", source, name)

    def facts(self, pattern: Value, *, name: str | None = None) -> FlowStage:
        """Adds a source of the captures of a pattern, as tuples, as facts of the space come and go.

        A pattern of two captures makes pairs, ready to be joined and folded by key.
        """
        return self._fed("facts", Facts(pattern), name)

    def messages(self, pattern: Value, *, name: str | None = None) -> FlowStage:
        """Adds a source of the captures of a pattern in the messages of each turn of the space."""
        return self._fed("messages", Messages(pattern), name)

    def interval(self, seconds: float, *, name: str | None = None) -> FlowStage:
        """Adds a source of the time in microseconds since 1970, once in so many seconds (see ``pump``)."""
        return self._fed("interval", Interval(seconds), name)

    def stream(self, stream: Incoming, *, name: str | None = None) -> FlowStage:
        """Adds a source of the values of a stream, as ``pump`` reads them."""
        return self._fed("stream", Streamed(stream), name)

    def _fed(self, kind: str, source: SourceOperator, name: str | None) -> FlowStage:
        """Adds a source, and registers it for what waits for a tick."""
        stage = self.add(kind, source, name=name)
        self._sources.append(source)
        return stage

    def add(self, kind: str, operator: Operator, *, name: str | None = None) -> FlowStage:
        """Adds an operator that is not connected yet; raises ``UsageError`` for a name that is in use."""
        return FlowStage(self, self.place(kind, operator, name))

    def connect(self, source: FlowStage | str, target: FlowStage | str, port: str = "") -> None:
        """Connects the output of a stage to an input of another; names may be defined later.

        ``source`` may name one of several outputs, as in ``"parting[odd]"``, and so may ``target`` its input.
        """
        start, output = end_of(source)
        end, given = end_of(target)
        self.lead(start, output, end, port or given)

    def __getitem__(self, name: str) -> FlowStage:
        """Returns the stage of a name, which may be defined later."""
        return FlowStage(self, name)

    # -- compiling ------------------------------------------------------------------------------------

    def _compile(self) -> None:
        edges = self.checked()
        strata = self.strata()
        self._strata = [Stratum() for _ in range(strata.count)]
        place = {name: at for at, members in enumerate(strata.components) for name in members}
        cut = set(strata.handoffs)
        outputs: dict[tuple[str, str], list[Emit | _Direct]] = {}
        handoffs: list[Handoff] = []
        for edge, output in sorted(edges, key=lambda each: place[each[0].target]):
            to: Emit | _Direct = _Direct(self.operators[edge.target], edge.port)
            looped = not edge.delayed and place[edge.source] == place[edge.target]
            if looped or edge in cut:
                hand = Handoff(edge, looped)
                handoffs.append(hand)
                to = self._filed(hand, self._strata[strata.number[edge.target]])
            outputs.setdefault((edge.source, output), []).append(to)
        for name in sorted(place, key=place.__getitem__, reverse=True):
            self._bind(name, self.operators[name], outputs)
        for hand in handoffs:
            hand.receive = self._receiver(self.operators[hand.edge.target], hand.edge.port)
        for name in reversed(place):  # downstream first: what one releases may stream into the next
            self._strata[strata.number[name]].take(self.operators[name])
        self._forgetting = [self.operators[name] for name in place if self.operators[name].forgets]
        self._is_fixed = True

    def _bind(
        self, name: str, operator: Operator, outputs: dict[tuple[str, str], list[Emit | _Direct]]
    ) -> None:
        """Gives an operator its receivers: every operator directly downstream of it has been bound before."""
        for output in getattr(operator, "names", operator.outputs):
            to = outputs.get((name, output), ())
            operator.emits[output] = _tee(
                [
                    self._receiver(each.operator, each.port) if isinstance(each, _Direct) else each
                    for each in to
                ]
            )
        operator.emit = operator.emits.get("", nowhere)

    def _receiver(self, operator: Operator, port: str) -> Emit:
        """Returns what takes the items of an input, noted for when it raises."""
        name = next(each for each, known in self.operators.items() if known is operator)
        receiver = operator.receiver(port)
        self._blame.know(name, operator, receiver)
        return receiver

    def _filed(self, hand: Handoff, stratum: Stratum) -> Emit:
        """Registers a handoff in the stratum that empties it; returns what puts items into it, now or a tick
        later."""
        put = stratum.file(hand)
        if not hand.edge.delayed:
            return put
        waiting = Handoff(hand.edge, False, receive=put)
        self._delayed.append(waiting)
        return lambda item, weight: waiting.buffer.append((item, weight))

    # -- running --------------------------------------------------------------------------------------

    def run_tick(self) -> int:
        """Runs one tick to its end; returns the number of the next one.  O(changes that it causes).

        What a function raises comes out of here, with a note that names the stage, and the flow is broken.
        """
        if not self._is_fixed:
            self._compile()
        if self._broken:
            raise UsageError("this flow is broken: a function in it raised, or a cycle did not end")
        self._broken = True
        try:
            self._run_strata()
        except BaseException as error:
            if name := self._blame.stage(error):
                error.add_note(f"in the stage {name} of a flow")
            raise
        self.tick += 1
        self._broken = False
        return self.tick

    def _run_strata(self) -> None:
        for waiting in self._delayed:
            drain(waiting)
        for at, stratum in enumerate(self._strata):
            if stratum.dirty or stratum.every_tick or not at:
                stratum.dirty, self.stratum = False, at
                self._run_stratum(stratum, first=not at)
        for operator in self._forgetting:
            operator.end_tick()

    def _run_stratum(self, stratum: Stratum, *, first: bool) -> None:
        if stratum.blocking or stratum.released:
            stratum.release()
        if first:
            self._ingest()
        for hand in stratum.streaming:
            if hand.buffer:
                drain(hand)
        if stratum.loops:
            self._loop(stratum)

    def _ingest(self) -> None:
        if self._iterators:
            begun, self._iterators = self._iterators, []
            for source, items in begun:
                for item in items:
                    source.emit(item, 1)
        for source in self._sources:
            if source.waiting:
                waiting, source.waiting = source.waiting, []
                emit = source.emit
                for item, weight in waiting:
                    emit(item, weight)

    def _loop(self, stratum: Stratum) -> None:
        """Passes items round the cycles of a stratum until none is left."""
        looped, moved = 0, True
        while moved:
            moved = False
            for hand in stratum.loops:
                looped += len(hand.buffer)
                moved |= drain(hand)
                if looped > self._max_looped:
                    edge = hand.edge
                    raise UsageError(
                        f"more than {self._max_looped} items went from {edge.source} to {edge.target} and on"
                        " in one tick: this cycle does not end"
                    )

    def run_available(self, limit: int = 10_000) -> int:
        """Runs a tick, and further ones while items wait; returns how many.

        Raises ``UsageError`` after ``limit`` ticks without new input.
        """
        ticks = 0
        while not ticks or self.pending:
            if ticks >= limit:
                raise UsageError(f"{ticks} ticks have each caused the next, limit {limit}")
            self.run_tick()
            ticks += 1
        return ticks

    def take(self) -> Derived:
        """Returns the facts asserted and retracted and the messages sent since the last call; O(their
        number)."""
        return self.outcome.take()

    @property
    def pending(self) -> bool:
        """True if items wait for a tick."""
        return any(source.waiting for source in self._sources) or any(hand.buffer for hand in self._delayed)

    def statistics(self) -> FlowStatistics:
        """Returns counts; O(held items)."""
        waiting = sum(len(source.waiting) for source in self._sources)
        held = sum(operator.size() for operator in self.operators.values()) - waiting
        return FlowStatistics(self.tick, held, waiting + sum(len(hand.buffer) for hand in self._delayed))


@dataclass(frozen=True, slots=True)
class _Direct:
    """An edge without a handoff: gets the receiver of its target once that is bound."""

    operator: Operator
    port: str


def _tee(emits: list[Emit]) -> Emit:
    """Returns one function for all targets of an output."""
    if not emits:
        return nowhere
    if len(emits) == 1:
        return emits[0]

    def tee(item: Any, weight: int) -> None:
        for emit in emits:
            emit(item, weight)

    return tee


__all__ = ["Flow", "FlowStatistics", "FlowStage"]
