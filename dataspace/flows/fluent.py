"""The fluent interface of a flow: stages, with one method for each operator.

A stage is an operator in a flow, by name; its methods add the next one and connect it.  A stage that is used
twice is a tee.  It holds nothing but names, so it can stand for a stage that is defined later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dataspace.flows import blocking as b, joins as j, operators as o, outputs as out, windows as w
from dataspace.flows.sessions import SessionWindows
from dataspace.flows.wiring import Wiring
from index.errors import UsageError

Fn = Callable[[Any], Any]
Step = Callable[[Any, Any], Any]


class FlowStage:
    """One operator of a flow, or one of its outputs."""

    __slots__ = ("flow", "name", "output")

    def __init__(self, flow: Wiring, name: str, output: str = "") -> None:
        self.flow = flow
        self.name = name
        self.output = output

    def __repr__(self) -> str:
        return f"<stage {self.name}{f'[{self.output}]' if self.output else ''}>"

    def __getitem__(self, output: str) -> FlowStage:
        """Returns one of several outputs."""
        return FlowStage(self.flow, self.name, output)

    def to(self, target: FlowStage | str, port: str = "") -> FlowStage:
        """Connects this output to an input; returns the target."""
        end, given = end_of(target)
        self.flow.lead(self.name, self.output, end, port or given)
        return FlowStage(self.flow, end)

    def then(self, kind: str, operator: o.Operator, *others: FlowStage, name: str | None = None) -> FlowStage:
        """Adds an operator and connects this stage, then ``others``, to its inputs in their order."""
        stage = FlowStage(self.flow, self.flow.place(kind, operator, name))
        ports = [port.name for port in operator.inputs]
        if len(ports) == 1:
            ports *= 1 + len(others)
        for source, port in zip((self, *others), ports, strict=True):
            source.to(stage, port)
        return stage

    # -- sources --------------------------------------------------------------------------------------

    def put(self, item: Any, weight: int = 1) -> None:
        """Adds an item to the next tick; O(1)."""
        source = self.flow.operator(self.name)
        if not isinstance(source, o.SourceOperator):
            raise UsageError(f"{self.name} is a {self.flow.kinds[self.name]}, items are put into sources")
        source.waiting.append((item, weight))

    def retract(self, item: Any) -> None:
        """Retracts an item in the next tick; O(1)."""
        self.put(item, -1)

    def put_all(self, items: Iterable[Any]) -> None:
        """Adds all of these items to the next tick."""
        for item in items:
            self.put(item)

    # -- operators that stream ------------------------------------------------------------------------

    def map(self, fn: Fn, *, name: str | None = None) -> FlowStage:
        """Passes each item through a function."""
        return self.then("map", o.MapOperator(fn), name=name)

    def filter(self, fn: Fn, *, name: str | None = None) -> FlowStage:
        """Passes on the items for which a function is true."""
        return self.then("filter", o.Filter(fn), name=name)

    def filter_map(self, fn: Fn, *, name: str | None = None) -> FlowStage:
        """Passes each item through a function, and drops it where that returns None."""
        return self.then("filter_map", o.FilterMap(fn), name=name)

    def flat_map(self, fn: Callable[[Any], Iterable[Any]], *, name: str | None = None) -> FlowStage:
        """Passes on all items that a function makes of each."""
        return self.then("flat_map", o.FlatMap(fn), name=name)

    def inspect(self, fn: o.Emit, *, name: str | None = None) -> FlowStage:
        """Calls a function with each item and its weight, and passes it on."""
        return self.then("inspect", o.Inspect(fn), name=name)

    def tee(self, *, name: str | None = None) -> FlowStage:
        """Passes on every item; any number of stages may follow, as after any stage."""
        return self.then("tee", o.Identity(), name=name)

    def union(self, *others: FlowStage, name: str | None = None) -> FlowStage:
        """Passes on the items of this stage and of others, in no defined order between them."""
        return self.then("union", o.Identity(), *others, name=name)

    def demux(self, fn: Callable[[Any], str], *outputs: str, name: str | None = None) -> FlowStage:
        """Passes each item to the output that a function names; use them as ``stage["output"]``."""
        return self.then("demux", o.Demux(fn, *outputs), name=name)

    def enumerate(self, *, lifetime: str = o.TICK, name: str | None = None) -> FlowStage:
        """Passes on items with their number from 0, counted in each tick or over all ticks."""
        return self.then("enumerate", o.Enumerate(lifetime), name=name)

    def unique(self, *, lifetime: str = o.TICK, name: str | None = None) -> FlowStage:
        """Passes on each item once."""
        return self.then("unique", o.UniqueOperator(lifetime), name=name)

    def persist(self, *, replay: bool = False, name: str | None = None) -> FlowStage:
        """Remembers items over ticks, each once; with ``replay`` says all of them in every tick."""
        return self.then("persist", o.ReplayOperator() if replay else o.Persist(), name=name)

    def next_tick(self, *, name: str | None = None) -> FlowStage:
        """Passes on the items a tick later: needed in every cycle."""
        return self.then("next_tick", o.NextTick(), name=name)

    def join(self, other: FlowStage, *, lifetime: str = o.TICK, name: str | None = None) -> FlowStage:
        """Joins ``(k, v)`` and ``(k, w)`` to ``(k, (v, w))``."""
        return self.then("join", j.Join(lifetime), other, name=name)

    def cross_join(self, other: FlowStage, *, lifetime: str = o.TICK, name: str | None = None) -> FlowStage:
        """Joins every item with every item of another stage."""
        return self.then("cross_join", j.CrossJoin(lifetime), other, name=name)

    def zip(self, other: FlowStage, *, lifetime: str = o.TICK, name: str | None = None) -> FlowStage:
        """Joins the items of two stages in pairs, first with first."""
        return self.then("zip", j.Zip(lifetime), other, name=name)

    # -- operators that block -------------------------------------------------------------------------

    def difference(self, neg: FlowStage, *, lifetime: str = o.TICK, name: str | None = None) -> FlowStage:
        """Passes on the items that are not among the items of ``neg``, for which it waits."""
        return self.then("difference", j.Difference(lifetime), neg, name=name)

    def anti_join(self, neg: FlowStage, *, lifetime: str = o.TICK, name: str | None = None) -> FlowStage:
        """Passes on the pairs whose key is not among the items of ``neg``, for which it waits."""
        return self.then("anti_join", j.AntiJoin(lifetime), neg, name=name)

    def sort(self, *, name: str | None = None) -> FlowStage:
        """Passes on the items of a tick in the total order of values."""
        return self.then("sort", b.Sort(), name=name)

    def sort_by(self, by: Fn, *, name: str | None = None) -> FlowStage:
        """Passes on the items of a tick in the order of what a function makes of them."""
        return self.then("sort_by", b.Sort(by), name=name)

    def top(
        self, n: int, *, by: Fn = b._itself, lifetime: str = o.TICK, name: str | None = None
    ) -> FlowStage:
        """Emits the ``n`` largest items, and with the lifetime ``"static"`` the changes of these."""
        return self.then("top", b.Top(n, by, lifetime), name=name)

    def last(self, n: int, *, name: str | None = None) -> FlowStage:
        """Emits the last ``n`` items, over ticks."""
        return self.then("last", b.Last(n), name=name)

    def window(
        self,
        size: float,
        slide: float | None = None,
        lateness: float = 0,
        *,
        at: Fn | None = None,
        keep: float = 0,
        final: bool = False,
        name: str | None = None,
    ) -> FlowStage:
        """Passes on each item until it is ``size`` seconds old; with ``slide`` ``(start, item)`` for each
        window of that size, one each ``slide``, that has it, until the window is complete.

        The time of an item is ``at(item)``, else the time of the tick.  ``keep`` and ``final`` are for
        windows that slide.  Late items come from ``stage["late"]``.
        """
        if slide is not None:
            hopping = w.Hopping(size, slide, self.flow, at, lateness, keep=keep, final=final)
            return self.then("window", hopping, name=name)
        if keep or final:
            raise UsageError("keep and final are of windows with a slide: other windows are never complete")
        return self.then("window", w.Sliding(size, self.flow, at, lateness), name=name)

    def sessions(
        self,
        gap: float,
        lateness: float = 0,
        *,
        at: Fn | None = None,
        keep: float = 0,
        final: bool = False,
        name: str | None = None,
    ) -> FlowStage:
        """Passes on ``((k, start), v)`` for each pair ``(k, v)``: sessions of a key end where nothing comes
        for ``gap`` seconds.  The rest is as for ``window``."""
        sessions = SessionWindows(gap, self.flow, at, lateness, keep=keep, final=final)
        return self.then("sessions", sessions, name=name)

    def fold(
        self,
        start: Callable[[], Any],
        step: Step,
        *,
        undo: Step | None = None,
        lifetime: str = o.TICK,
        name: str | None = None,
    ) -> FlowStage:
        """Emits one value made of all items; ``undo`` removes one again."""
        return self.then("fold", b.Fold(start, step, undo, lifetime), name=name)

    def reduce(self, fn: Step, *, lifetime: str = o.TICK, name: str | None = None) -> FlowStage:
        """Emits all items combined two by two."""
        return self.then("reduce", b.ReduceOperator(fn, lifetime), name=name)

    def fold_keyed(
        self,
        start: Callable[[], Any],
        step: Step,
        *,
        undo: Step | None = None,
        lifetime: str = o.TICK,
        name: str | None = None,
    ) -> FlowStage:
        """Emits for each key the fold of its values, as ``(k, folded)``."""
        return self.then("fold_keyed", b.FoldKeyed(start, step, undo, lifetime), name=name)

    def reduce_keyed(self, fn: Step, *, lifetime: str = o.TICK, name: str | None = None) -> FlowStage:
        """Emits for each key its values combined two by two."""
        start, step = b.reduced(fn)
        return self.then("reduce_keyed", b.FoldKeyed(start, step, None, lifetime), name=name)

    # -- ends -----------------------------------------------------------------------------------------

    def for_each(self, fn: Fn, *, gone: Fn | None = None, name: str | None = None) -> FlowStage:
        """Calls ``fn`` with each added item, ``gone`` with each retracted one."""
        return self.then("for_each", o.ForEach(fn, gone), name=name)

    def assert_(
        self, make: Fn = b._itself, *, lifetime: str = o.STATIC, name: str | None = None
    ) -> FlowStage:
        """Asserts what ``make`` returns for each item, until it is retracted; with ``"tick"`` for one
        tick."""
        return self.then("assert", out.Asserting(self.flow.outcome, make, lifetime), name=name)

    def send(self, make: Fn = b._itself, *, name: str | None = None) -> FlowStage:
        """Sends what ``make`` returns for each added item as a message."""
        return self.then("send", out.Sending(self.flow.outcome, make), name=name)

    def write(self, stream: out.Outgoing, *, changes: bool = False, name: str | None = None) -> FlowStage:
        """Writes each item into a stream, which does not wait; with ``changes`` as ``(item, weight)``."""
        return self.then("write", out.Writing(stream, changes=changes), name=name)

    def each_change(self, fn: o.Emit, *, name: str | None = None) -> FlowStage:
        """Calls ``fn`` with each item and its weight."""
        return self.then("each_change", o.EachChange(fn), name=name)


def end_of(stage: FlowStage | str) -> tuple[str, str]:
    """Returns a stage and one of its ports: ``"parting[odd]"``, ``"[neg]d"`` and ``"d"`` are all
    understood."""
    if isinstance(stage, FlowStage):
        return stage.name, stage.output
    if stage.startswith("["):
        port, _, name = stage[1:].partition("]")
        return name, port
    name, _, port = stage.partition("[")
    return name, port.rstrip("]")
