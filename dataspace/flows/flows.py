"""Flows: operators wired into a graph, run tick by tick and stratum by stratum.

A flow is built by chaining stages (``flow.source("n").map(f).for_each(print)``), or by name, where a name may
be used before it is defined.  The first tick compiles it: the graph is cut at handoffs, ordered in strata and
refused if an input that blocks is part of a cycle.  Within a stratum items are pushed from operator to
operator as they come, so that the first output leaves before the last input was read.

Items wait at *handoffs*: "The runtime provides a mechanism to buffer output and notify that there is no more
data to send" (the source, "Examples of Blocking Operators").  An item waits for its stratum to begin, for its
turn in a cycle, or for the next tick; everywhere else operators call each other.

Always: a tick takes what the sources hold when it begins, and nothing later; strata run in ascending order,
each until nothing moves in it; a buffer is emptied in the order in which it was filled, and an item in a
buffer makes its stratum run; a flow in which a function raised is broken, and raises an error when run again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Final

from dataspace.flows.fluent import FlowStage, end_of
from dataspace.flows.graphs import Edge
from dataspace.flows.inputs import Facts, Incoming, Interval, Messages, Streamed
from dataspace.flows.operators import Emit, Operator, SourceOperator, nowhere
from dataspace.flows.results import Derived
from dataspace.flows.windows import Windows
from dataspace.flows.wiring import Wiring
from dataspace.instants import NEVER
from index.errors import UsageError
from index.values.values import Value

MAX_LOOPED: Final = 10_000_000
"""Default limit of items that may pass round the cycles of a flow in one tick."""


@dataclass(frozen=True, slots=True)
class FlowStatistics:
    """Ticks that were run, items that operators hold, that wait for the next tick, and that were late."""

    ticks: int
    held: int
    waiting: int
    late: int = 0


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
        self._strata: list[_Stratum] = []
        self._forgetting: list[Operator] = []
        self._timed: list[Windows] = []
        self._delayed: list[_Handoff] = []
        self._broken = False
        self._blame = _Blame()

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
        self._strata = [_Stratum() for _ in range(strata.count)]
        place = {name: at for at, members in enumerate(strata.components) for name in members}
        cut = set(strata.handoffs)
        outputs: dict[tuple[str, str], list[Emit | _Direct]] = {}
        handoffs: list[_Handoff] = []
        for edge, output in sorted(edges, key=lambda pair: place[pair[0].target]):
            to: Emit | _Direct = _Direct(self.operators[edge.target], edge.port)
            looped = not edge.delayed and place[edge.source] == place[edge.target]
            if looped or edge in cut:
                hand = _Handoff(edge, looped)
                handoffs.append(hand)
                to = self._filed(hand, self._strata[strata.number[edge.target]])
            outputs.setdefault((edge.source, output), []).append(to)
        for name in sorted(place, key=place.__getitem__, reverse=True):
            self._bind(name, self.operators[name], outputs)
        for hand in handoffs:
            hand.receive = self._receiver(self.operators[hand.edge.target], hand.edge.port)
        for name in reversed(place):  # downstream first: what one releases may stream into the next
            self._strata[strata.number[name]].add_operator(self.operators[name])
        self._timed = [
            each for each in self.operators.values() if isinstance(each, Windows) and each.every_tick
        ]
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

    def _filed(self, hand: _Handoff, stratum: _Stratum) -> Emit:
        """Registers a handoff in the stratum that empties it; returns what puts items into it, now or a tick
        later."""
        put = stratum.file(hand)
        if not hand.edge.delayed:
            return put
        waiting = _Handoff(hand.edge, False, receive=put)
        self._delayed.append(waiting)
        return lambda item, weight: waiting.buffer.append((item, weight))

    # -- running --------------------------------------------------------------------------------------

    def run_tick(self, now: int = 0) -> int:
        """Runs one tick to its end; returns the number of the next one.  O(changes that it causes).

        ``now`` is its time in microseconds since 1970, for windows that take no time from their items: times
        never go back.  What a function raises comes out of here, with a note that names the stage, and the
        flow is broken.
        """
        if not self._is_fixed:
            self._compile()
        if self._broken:
            raise UsageError("this flow is broken: a function in it raised, or a cycle did not end")
        self._broken = True
        self.time = max(self.time, now)
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
            _drain(waiting)
        for at, stratum in enumerate(self._strata):
            if stratum.dirty or stratum.every_tick or not at:
                stratum.dirty, self.stratum = False, at
                self._run_stratum(stratum, first=not at)
        for operator in self._forgetting:
            operator.end_tick()

    def _run_stratum(self, stratum: _Stratum, *, first: bool) -> None:
        if stratum.blocking or stratum.released:
            stratum.release()
        if first:
            self._ingest()
        for hand in stratum.streaming:
            if hand.buffer:
                _drain(hand)
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

    def _loop(self, stratum: _Stratum) -> None:
        """Passes items round the cycles of a stratum until none is left."""
        looped, moved = 0, True
        while moved:
            moved = False
            for hand in stratum.loops:
                looped += len(hand.buffer)
                moved |= _drain(hand)
                if looped > self._max_looped:
                    edge = hand.edge
                    raise UsageError(
                        f"more than {self._max_looped} items went from {edge.source} to {edge.target} and on"
                        " in one tick: this cycle does not end"
                    )

    def run_available(self, limit: int = 10_000, *, now: int = 0) -> int:
        """Runs a tick, and further ones while items wait, all at one time; returns how many.

        Raises ``UsageError`` after ``limit`` ticks without new input.
        """
        ticks = 0
        while not ticks or self.pending:
            if ticks >= limit:
                raise UsageError(f"{ticks} ticks have each caused the next, limit {limit}")
            self.run_tick(now)
            ticks += 1
        return ticks

    @property
    def due(self) -> int:
        """The time in microseconds at which windows need a tick, with or without input; else ``NEVER``."""
        return min([operator.due for operator in self._timed], default=NEVER)

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
        waiting += sum(len(hand.buffer) for hand in self._delayed)
        late = sum(operator.late for operator in self.operators.values() if isinstance(operator, Windows))
        return FlowStatistics(self.tick, held, waiting, late)


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


# -- blame -----------------------------------------------------------------------------------------
#
# In which stage did a function raise? Operators call each other without anything in between, so an exception
# passes through all stages upstream of the failed stage. Nothing is paid for while nothing is raised: the
# frames that it passed are compared with the receivers that the flow was wired from. The innermost stage is
# named; where two stages are of the same functions, both are.


class _Blame:
    """What the frames of each stage look like."""

    def __init__(self) -> None:
        self._receivers: dict[Hashable, dict[str, None]] = {}
        self._operators: dict[int, str] = {}

    def know(self, name: str, operator: Operator, receiver: Any = None) -> None:
        """Notes a stage, and a function that takes its items."""
        self._operators[id(operator)] = name
        if receiver is operator.emit:  # it passes items on: what raises there is further down
            return
        code = getattr(receiver, "__code__", None)
        if code is not None:
            cells = [cell.cell_contents for cell in receiver.__closure__ or ()]
            place = (code, tuple(map(id, cells)))
            self._receivers.setdefault(place, {})[name] = None

    def stage(self, error: BaseException) -> str:
        """Returns the name of the stage in which an exception was raised; empty where it was in none."""
        found = ""
        trace: TracebackType | None = error.__traceback__
        while trace is not None:
            found = self._named(trace.tb_frame) or found
            trace = trace.tb_next
        return found

    def _named(self, frame: FrameType) -> str:
        code, known = frame.f_code, frame.f_locals
        names = self._receivers.get((code, tuple([id(known.get(name)) for name in code.co_freevars])))
        if names is not None:
            return " or ".join(names)
        return self._operators.get(id(known.get("self")), "")


# -- handoffs --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Handoff:
    """An edge at which items wait; ``receive`` takes them from here."""

    edge: Edge
    looped: bool
    buffer: list[tuple[Any, int]] = field(default_factory=list)
    receive: Emit = nowhere


@dataclass(slots=True)
class _Stratum:
    """The part of a flow between handoffs: the order in which buffers are emptied and operators released."""

    blocking: list[_Handoff] = field(default_factory=list)
    streaming: list[_Handoff] = field(default_factory=list)
    loops: list[_Handoff] = field(default_factory=list)
    released: list[Operator] = field(default_factory=list)
    every_tick: bool = False
    dirty: bool = True

    def file(self, hand: _Handoff) -> Emit:
        """Adds a handoff that is emptied here; returns what puts items into it."""
        if hand.looped:
            self.loops.append(hand)
            return _growing(hand, self)
        (self.blocking if hand.edge.blocking else self.streaming).append(hand)
        return _waiting_in(hand, self)

    def add_operator(self, operator: Operator) -> None:
        """Adds an operator that runs here; it is released before the operators that were added earlier."""
        if type(operator).release is not Operator.release:
            self.released.append(operator)
        self.every_tick |= operator.every_tick

    def release(self) -> None:
        """Releases the operators whose blocking input is complete, so that they emit their results."""
        for hand in self.blocking:
            if hand.buffer:
                _drain(hand)
        for operator in self.released:
            operator.release()
        if self.every_tick:  # ends once the operators without input have emitted their result
            self.every_tick = any(operator.every_tick for operator in self.released)


def _waiting_in(hand: _Handoff, stratum: _Stratum) -> Emit:
    """Returns what puts items into a handoff of a stratum."""
    buffer = hand.buffer

    def wait(item: Any, weight: int) -> None:
        buffer.append((item, weight))
        stratum.dirty = True

    return wait


def _growing(hand: _Handoff, stratum: _Stratum) -> Emit:
    """Returns the same for a handoff within a cycle, where nothing can be retracted."""
    wait, edge = _waiting_in(hand, stratum), hand.edge

    def grow(item: Any, weight: int) -> None:
        if weight < 0:
            raise UsageError(
                f"a retraction reached the cycle through {edge.source} and {edge.target}: what goes round"
                " could support itself; write it as rules, which retract correctly"
            )
        wait(item, weight)

    return grow


def _drain(hand: _Handoff) -> bool:
    """Empties a buffer, in place, since others hold it; True if anything was in it."""
    buffer = hand.buffer
    if not buffer:
        return False
    items = buffer[:]
    buffer.clear()
    receive = hand.receive
    for item, weight in items:
        receive(item, weight)
    return True
