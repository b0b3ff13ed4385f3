"""Flows: operators wired into a graph, run tick by tick and stratum by stratum.

A flow is built by chaining stages (``flow.source("n").map(f).for_each(print)``), or by name, where a name
may be used before it is defined.  The first tick compiles it: the graph is cut at handoffs, ordered in
strata and refused if an input that blocks is part of a cycle.  Within a stratum items are pushed from
operator to operator as they come, so that the first output leaves before the last input was read.

Always: a tick takes what the sources hold when it begins, and nothing later; strata run in ascending order,
each until nothing moves in it; a flow in which a function raised is broken, and says so when run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from dataspace.rules.derived import Derived
from dataspace.rules.graphs import Edge, Graph, Strata
from dataspace.rules.inlets import Facts, Incoming, Interval, Messages, Streamed
from dataspace.rules.operators import Emit, Operator, Port, Source, nowhere
from dataspace.rules.outlets import Outcome
from dataspace.rules.stages import Stage
from index.errors import UsageError
from index.values import Value

MAX_LOOPED: Final = 10_000_000
"""Items that may go round the cycles of a flow in one tick, unless the flow is told otherwise."""


@dataclass(frozen=True, slots=True)
class FlowStatistics:
    """Ticks that were run, items that operators hold, items that wait for the next tick."""

    ticks: int
    held: int
    waiting: int


@dataclass(slots=True)
class Handoff:
    """An edge at which items wait: for their stratum, for their turn in a cycle, or for the next tick."""

    edge: Edge
    looped: bool
    buffer: list[tuple[Any, int]] = field(default_factory=list)
    receive: Emit = nowhere


@dataclass(slots=True)
class _Stratum:
    """What runs between two handoffs: in which order buffers are emptied and operators released."""

    blocking: list[Handoff] = field(default_factory=list)
    streaming: list[Handoff] = field(default_factory=list)
    loops: list[Handoff] = field(default_factory=list)
    released: list[Operator] = field(default_factory=list)
    every_tick: bool = False
    dirty: bool = True


class Flow:
    """A graph of operators and its state.  Not safe for threads."""

    def __init__(self, *, max_looped: int = MAX_LOOPED) -> None:
        self.tick = 0
        self.operators: dict[str, Operator] = {}
        self.kinds: dict[str, str] = {}
        self.edges: list[tuple[Edge, str]] = []
        self.outcome = Outcome()
        self._max_looped = max_looped
        self._sources: list[Source] = []
        self._iterators: list[tuple[Source, Iterator[Any]]] = []
        self._strata: list[_Stratum] = []
        self._forgetting: list[Operator] = []
        self._delayed: list[Handoff] = []
        self._ready = False
        self._broken = False

    # -- building -------------------------------------------------------------------------------------

    def source(self, items: Iterable[Any] = (), *, name: str | None = None) -> Stage:
        """A source: what ``items`` gives in the first tick, and what is ``put`` in later ones."""
        source = Source()
        self._iterators.append((source, iter(items)))
        return self._fed("source", source, name)

    def facts(self, pattern: Value, *, name: str | None = None) -> Stage:
        """The captures of a pattern, as a tuple, as they come and go in the space that drives this.

        A pattern of two captures makes pairs, ready to be joined and folded by key.
        """
        return self._fed("facts", Facts(pattern), name)

    def messages(self, pattern: Value, *, name: str | None = None) -> Stage:
        """The captures of a pattern in the messages of each turn of that space."""
        return self._fed("messages", Messages(pattern), name)

    def interval(self, seconds: float, *, name: str | None = None) -> Stage:
        """The time in microseconds since 1970, each time that so many seconds have passed (see ``pump``)."""
        return self._fed("interval", Interval(seconds), name)

    def stream(self, stream: Incoming, *, name: str | None = None) -> Stage:
        """The values of a stream, as ``pump`` reads them."""
        return self._fed("stream", Streamed(stream), name)

    def _fed(self, kind: str, source: Source, name: str | None) -> Stage:
        """A source, filed where a tick looks for what waits."""
        stage = self.add(kind, source, name=name)
        self._sources.append(source)
        return stage

    def add(self, kind: str, operator: Operator, *, name: str | None = None) -> Stage:
        """A stage that nothing is connected to yet; ``UsageError`` for a name that is taken."""
        self._refuse_if_ready()
        name = name or f"{kind}-{len(self.operators) + 1}"
        if name in self.operators:
            raise UsageError(f"the name {name!r} is taken by a {self.kinds[name]}")
        self.operators[name] = operator
        self.kinds[name] = kind
        return Stage(self, name)

    def connect(self, source: Stage | str, target: Stage | str, port: str = "") -> None:
        """Leads the output of a stage to an input of another; names may be defined later.

        ``source`` may name one of several outputs, as in ``"parting[odd]"``, and so may ``target`` its input.
        """
        self._refuse_if_ready()
        start, output = _named(source)
        end, given = _named(target)
        self.edges.append((Edge(start, end, port or given), output))

    def __getitem__(self, name: str) -> Stage:
        """A stage by its name, which may be defined later."""
        return Stage(self, name)

    def _refuse_if_ready(self) -> None:
        if self._ready:
            raise UsageError("this flow has run: its graph is fixed")

    # -- the graph ------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        """The graph as it stands; ``UsageError`` for names and ports that are none, or not connected."""
        return Graph(dict.fromkeys(self.operators), [edge for edge, _ in self._checked()])

    def strata(self) -> Strata:
        """The strata of the graph; ``BlockingCycle`` where there are none."""
        return self.graph().strata()

    def _checked(self) -> list[tuple[Edge, str]]:
        checked = [self._checked_edge(edge, output) for edge, output in self.edges]
        ended: dict[tuple[str, str], int] = {}
        for edge, _ in checked:
            ended[edge.target, edge.port] = ended.get((edge.target, edge.port), 0) + 1
        for name, operator in self.operators.items():
            for port in operator.inputs:
                self._check_port(name, port, ended.get((name, port.name), 0))
        return checked

    def _checked_edge(self, edge: Edge, output: str) -> tuple[Edge, str]:
        for name in (edge.source, edge.target):
            if name not in self.operators:
                raise UsageError(f"no stage is named {name!r}")
        source, target = self.operators[edge.source], self.operators[edge.target]
        outputs = getattr(source, "names", source.outputs)
        if output not in outputs:
            raise UsageError(f"{self.kinds[edge.source]} has no output {output!r}, {_allowed(outputs)}")
        ports = {port.name: port for port in target.inputs}
        if edge.port not in ports:
            raise UsageError(f"{self.kinds[edge.target]} has no input {edge.port!r}, {_allowed(ports)}")
        blocking = ports[edge.port].blocking
        return Edge(edge.source, edge.target, edge.port, blocking, target.delays), output

    def _check_port(self, name: str, port: Port, edges: int) -> None:
        what = f"{self.kinds[name]} {name!r}" + (f", input {port.name!r}" if port.name else "")
        if not edges:
            raise UsageError(f"nothing is connected to {what}")
        if edges > 1 and not port.many:
            raise UsageError(f"{edges} stages are connected to {what}: join them with union first")

    # -- compiling ------------------------------------------------------------------------------------

    def _compile(self) -> None:
        edges = self._checked()
        strata = Graph(dict.fromkeys(self.operators), [edge for edge, _ in edges]).strata()
        self._strata = [_Stratum() for _ in range(strata.count)]
        place = {name: at for at, members in enumerate(strata.components) for name in members}
        outputs: dict[tuple[str, str], list[Emit | _Direct]] = {}
        handoffs: list[Handoff] = []
        for edge, output in sorted(edges, key=lambda each: place[each[0].target]):
            to: Emit | _Direct = _Direct(self.operators[edge.target], edge.port)
            looped = not edge.delayed and place[edge.source] == place[edge.target]
            if looped or edge in strata.handoffs:
                hand = Handoff(edge, looped)
                handoffs.append(hand)
                to = self._handoff(hand, self._strata[strata.number[edge.target]])
            outputs.setdefault((edge.source, output), []).append(to)
        for name in sorted(place, key=place.__getitem__, reverse=True):
            _bind(name, self.operators[name], outputs)
        for hand in handoffs:
            hand.receive = self.operators[hand.edge.target].receiver(hand.edge.port)
        for name in place:
            self._register(self.operators[name], self._strata[strata.number[name]])
        self._ready = True

    def _handoff(self, hand: Handoff, stratum: _Stratum) -> Emit:
        """Files a handoff where it will be emptied; what puts items into it."""
        if hand.looped:
            stratum.loops.append(hand)
            return _looping(hand.buffer, stratum, hand.edge)
        (stratum.blocking if hand.edge.blocking else stratum.streaming).append(hand)
        if not hand.edge.delayed:
            return _into(hand.buffer, stratum)
        waiting = Handoff(hand.edge, False, receive=_into(hand.buffer, stratum))
        self._delayed.append(waiting)
        return lambda item, weight: waiting.buffer.append((item, weight))

    def _register(self, operator: Operator, stratum: _Stratum) -> None:
        if type(operator).release is not Operator.release:
            stratum.released.append(operator)
        if operator.forgets:
            self._forgetting.append(operator)
        stratum.every_tick |= operator.every_tick

    # -- running --------------------------------------------------------------------------------------

    def run_tick(self) -> int:
        """Runs one tick to its end; the number of the next one.  O(changes that it brings about).

        What a function raises comes out of here, and the flow is broken.
        """
        if not self._ready:
            self._compile()
        if self._broken:
            raise UsageError("this flow is broken: a function in it raised, or a cycle did not end")
        self._broken = True
        for waiting in self._delayed:
            buffer, waiting.buffer = waiting.buffer, []
            for item, weight in buffer:
                waiting.receive(item, weight)
        for at, stratum in enumerate(self._strata):
            if stratum.dirty or stratum.every_tick or not at:
                stratum.dirty = False
                self._run_stratum(stratum, first=not at)
        for operator in self._forgetting:
            operator.end_tick()
        self.tick += 1
        self._broken = False
        return self.tick

    def _run_stratum(self, stratum: _Stratum, *, first: bool) -> None:
        for hand in stratum.blocking:
            _drain(hand)
        for operator in stratum.released:
            operator.release()
            if operator.every_tick:
                stratum.every_tick = True
        if first:
            self._ingest()
        for hand in stratum.streaming:
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
        """Lets items go round until none moves."""
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

    def run_available(self, limit: int = 10_000) -> int:
        """Runs a tick, and further ones while something waits; how many.

        ``UsageError`` after ``limit`` ticks that nothing from outside has caused.
        """
        ticks = 0
        while not ticks or self.pending:
            if ticks >= limit:
                raise UsageError(f"{ticks} ticks have each caused the next, limit {limit}")
            self.run_tick()
            ticks += 1
        return ticks

    def take(self) -> Derived:
        """What its outlets assert, and no longer, and send, since this was last asked; O(that)."""
        return self.outcome.take()

    @property
    def pending(self) -> bool:
        """Whether anything waits for a tick."""
        return any(source.waiting for source in self._sources) or any(hand.buffer for hand in self._delayed)

    def statistics(self) -> FlowStatistics:
        """Counts, in O(what is held)."""
        waiting = sum(len(source.waiting) for source in self._sources)
        held = sum(operator.size() for operator in self.operators.values()) - waiting
        return FlowStatistics(self.tick, held, waiting + sum(len(hand.buffer) for hand in self._delayed))


@dataclass(frozen=True, slots=True)
class _Direct:
    """An edge without a handoff: its target is asked for a receiver once it is bound itself."""

    operator: Operator
    port: str


def _bind(name: str, operator: Operator, outputs: dict[tuple[str, str], list[Emit | _Direct]]) -> None:
    """Gives an operator what it emits to: all that is directly downstream of it has been bound before."""
    for output in getattr(operator, "names", operator.outputs):
        to = outputs.get((name, output), ())
        operator.emits[output] = _tee(
            [each.operator.receiver(each.port) if isinstance(each, _Direct) else each for each in to]
        )
    operator.emit = operator.emits.get("", nowhere)


def _tee(emits: list[Emit]) -> Emit:
    """One function for all that an output goes to."""
    if not emits:
        return nowhere
    if len(emits) == 1:
        return emits[0]

    def tee(item: Any, weight: int) -> None:
        for emit in emits:
            emit(item, weight)

    return tee


def _into(buffer: list[tuple[Any, int]], stratum: _Stratum) -> Emit:
    def wait(item: Any, weight: int) -> None:
        buffer.append((item, weight))
        stratum.dirty = True

    return wait


def _looping(buffer: list[tuple[Any, int]], stratum: _Stratum, edge: Edge) -> Emit:
    def wait(item: Any, weight: int) -> None:
        if weight < 0:
            raise UsageError(
                f"a retraction reached the cycle through {edge.source} and {edge.target}: what goes round"
                " could support itself; write it as rules, which retract correctly"
            )
        buffer.append((item, weight))
        stratum.dirty = True

    return wait


def _drain(hand: Handoff) -> bool:
    """Empties a buffer, in place, since others hold it; whether anything was in it."""
    buffer = hand.buffer
    if not buffer:
        return False
    items = buffer[:]
    buffer.clear()
    receive = hand.receive
    for item, weight in items:
        receive(item, weight)
    return True


def _named(stage: Stage | str) -> tuple[str, str]:
    """A stage and one of its ports: ``"parting[odd]"``, ``"[neg]d"`` and ``"d"`` are all understood."""
    if isinstance(stage, Stage):
        return stage.name, stage.output
    if stage.startswith("["):
        port, _, name = stage[1:].partition("]")
        return name, port
    name, _, port = stage.partition("[")
    return name, port.rstrip("]")


def _allowed(names: Iterable[str]) -> str:
    known = [repr(name) for name in names]
    return f"it has {', '.join(known)}" if known and known != ["''"] else "it has one without a name"


__all__ = ["Flow", "FlowStatistics", "Stage"]
