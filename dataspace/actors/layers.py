"""Layers: an actor that hosts an inner dataspace, and what passes between it and the outer one.

Inside, ``outbound(x)`` asserted or sent is ``x`` outside; observing ``inbound(p)`` inside observes ``p``
outside, and what matches is ``inbound(x)`` inside.  That interest is a fact outside like any other: demand
inside starts supply outside.  A *firewall* is a layer through which only what matches one of its patterns
passes, in either direction.  Layers nest: ``inbound(p, 2)`` is about the space outside of the one outside.

Always: a fact or message that went out comes back only as ``inbound`` of itself, once; a message comes in
once however many interests it matches, and messages in the order in which they were sent, as far as an
interest observes both; when the layer ends, in whatever way, its assertions outside are retracted, and the
actors inside end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from dataspace.actors.engine.actors import ActorRuntime, ActorSpace, FacetResource, Handler
from dataspace.actors.engine.records import pattern_of, record
from dataspace.facts import as_it_is, fact_of
from index.errors import UsageError
from index.patterns.patterns import DISCARD, Pattern, capture, matcher, observe, skeleton
from index.values.values import Record, Value, key

if TYPE_CHECKING:
    from dataspace.actors.engine.turns import Turn

Outbound = record("outbound", "what")
Inbound = record("inbound", "what")
Quit = record("quit-dataspace")


def outbound(what: object, layers: int = 1) -> Value:
    """Returns what to assert or send inside so that it is ``what`` so many layers further out.

    >>> outbound(1, 2)
    Record('outbound', Record('outbound', 1,),)
    """
    value = fact_of(what)
    for _ in range(layers):
        value = Outbound(value)
    return value


def inbound(pattern: object, layers: int = 1) -> Pattern:
    """Returns what to observe inside for what matches a pattern so many layers further out."""
    observed = pattern_of(pattern)
    for _ in range(layers):
        observed = Inbound(observed)
    return observed


def layer(
    turn: Turn,
    boot: Handler,
    *args: object,
    name: str = "inner",
    allow: Sequence[object] | None = None,
    forbid: Sequence[object] = (),
) -> None:
    """Hosts an inner dataspace with one first actor; ``quit-dataspace()`` sent inside ends it.

    It belongs to the facet, which may have several.  With ``allow``, only facts and messages that match one
    of these patterns pass, facts of interest included; none passes that matches one of ``forbid``.
    """
    home = turn.actor.engine.home(name)
    home.depth, home.term = turn.home.depth + 1, turn.home.term
    inner, outer = turn.at(home), turn
    passes = _filter(allow, forbid)
    turn.facet.own(_Inside(turn.actor.engine, home))
    inner.observe(Quit(), message=lambda turn: turn.stop(), quiet=True)

    @inner.during(Outbound(capture()), quiet=True)
    def export(turn: Turn, what: Value) -> None:
        if passes(what):
            turn.at(outer.home).assert_(as_it_is(what))

    def export_message(turn: Turn, what: Value) -> None:
        if passes(what):
            turn.at(outer.home).send(as_it_is(what))

    inner.observe(Outbound(capture()), message=export_message, quiet=True)
    _bring_in(inner, outer, passes)
    turn.spawn(boot, *args, home=home)


class _Inside(FacetResource):
    """Ends the actors inside with the layer."""

    __slots__ = ("engine", "home")

    def __init__(self, engine: ActorRuntime, home: ActorSpace) -> None:
        self.engine = engine
        self.home = home

    def close(self) -> None:
        """Ends them: the layer has ended.  O(actors)."""
        for actor in list(self.engine.actors.values()):
            if actor.home is self.home:
                self.engine.end(actor, "its layer has ended")


def _bring_in(inner: Turn, outer: Turn, passes: Callable[[Value], bool]) -> None:
    """Brings in what is observed inside; each message once, even if several interests match it."""
    messages: dict[Pattern, list[Value]] = {}

    def flush(turn: Turn) -> None:
        for value in _merged(messages.values()) if not inner.facet.ended else ():
            inner.send(Inbound(value))
        messages.clear()

    @inner.during(observe(capture()), quiet=True)
    def wanted(turn: Turn, pattern: Pattern) -> None:
        observed = _observed_outside(pattern)
        if observed is None:
            return
        outside, interest, whole = turn.at(outer.home), observe(observed), capture(None, None, observed)
        if passes(interest):
            outside.assert_(interest)

        @outside.during(whole, quiet=True)
        def present(turn: Turn, what: Value, *_: Value) -> None:
            if passes(what):
                turn.at(inner.home).assert_(Inbound(what))

        def arrived(turn: Turn, what: Value, *_: Value) -> None:
            if passes(what):
                if not messages:
                    outer.before_commit(flush)
                messages.setdefault(pattern, []).append(what)

        outside.observe(whole, message=arrived, quiet=True)


def _observed_outside(pattern: Pattern) -> Pattern | None:
    """Returns what an inner interest observes outside; None if nothing, or if it is no pattern."""
    while isinstance(pattern, Record) and pattern.label in ("$", "exact") and pattern.fields:
        pattern = pattern.fields[-1]
    if not (isinstance(pattern, Record) and pattern.label == "inbound" and len(pattern.fields) <= 1):
        return None
    observed = pattern.fields[0] if pattern.fields else DISCARD
    try:
        skeleton(capture(None, None, observed))
    except UsageError:  # an actor inside may assert interest in what is none
        return None
    return observed


def _merged(received: Iterable[Sequence[Value]]) -> list[Value]:
    """Merges what each interest got in one epoch: each message once, in an order that agrees with each.

    >>> _merged([("a", "b", "a"), ("b", "c")])
    ['a', 'b', 'a', 'c']
    """
    order: TopologicalSorter[tuple[Hashable, int]] = TopologicalSorter()
    values: dict[tuple[Hashable, int], Value] = {}
    for messages in received:
        times: Counter[Hashable] = Counter()
        before: list[tuple[Hashable, int]] = []
        for message in messages:
            at = key(message)
            node = (at, times[at])
            times[at] += 1
            order.add(node, *before)
            values[node] = message
            before = [node]
    return [values[node] for node in order.static_order()]


def _filter(allow: Sequence[object] | None, forbid: Sequence[object]) -> Callable[[Value], bool]:
    allowed = _any_of([capture()] if allow is None else allow)
    forbidden = _any_of(forbid)
    return lambda value: allowed(value) and not forbidden(value)


def _any_of(patterns: Sequence[object]) -> Callable[[Value], bool]:
    matches = [matcher(pattern_of(each)) for each in patterns]
    return lambda value: any(match(value) is not None for match in matches)
