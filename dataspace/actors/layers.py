"""Layers: an actor that hosts an inner dataspace, and what passes between it and the one outside.

Inside, ``outbound(x)`` asserted or sent is ``x`` outside; observing ``inbound(p)`` inside observes ``p``
outside, and what matches is ``inbound(x)`` inside.  A *firewall* is a layer that lets only what matches one
of its patterns pass, in either direction.

Always: nothing that went out comes back but as ``inbound`` of itself, once; a message comes in once however
many interests it matches; when the layer ends, all it had outside goes, and the actors inside end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dataspace.actors.facets import Handler
from dataspace.actors.records import pattern_of, record
from index.patterns import Pattern, capture, matcher, observe
from index.values import Value, key

if TYPE_CHECKING:
    from dataspace.actors.turn import Turn

Outbound = record("outbound", "what")
Inbound = record("inbound", "what")
Quit = record("quit-dataspace")


def layer(
    turn: Turn, boot: Handler, *args: object, name: str = "inner", allow: Sequence[object] | None = None
) -> None:
    """Hosts an inner dataspace with one first actor; ``quit-dataspace()`` sent inside ends it.

    With ``allow``, only facts and messages that match one of these patterns pass.
    """
    actor = turn.actor
    actor.inner = actor.engine.home(name)
    inner, outer = turn.at(actor.inner), turn
    passes = _filter(allow)
    turn.facet.preventers += 1
    inner.stop_when_message(Quit())

    @inner.during(Outbound(capture()))
    def outbound(turn: Turn, what: Value) -> None:
        if passes(what):
            turn.at(outer.home).assert_(what)

    @inner.on_message(Outbound(capture()))
    def send_out(turn: Turn, what: Value) -> None:
        if passes(what):
            turn.at(outer.home).send(what)

    _bring_in(inner, outer, passes)
    turn.spawn(boot, *args, home=actor.inner)
    turn.on_stop(lambda _: _end_inside(turn))


def _end_inside(turn: Turn) -> None:
    for other in list(turn.actor.engine.actors.values()):
        if other.home is turn.actor.inner:
            turn.end_actor(other)


def _bring_in(inner: Turn, outer: Turn, passes: Callable[[Value], bool]) -> None:
    """What is observed inside comes in; one message once, though several interests match it."""
    said: dict[Pattern, list[Value]] = {}

    def flush(turn: Turn) -> None:
        most: Counter[object] = Counter()
        values: dict[object, Value] = {}
        for heard in said.values():
            counts = Counter(map(key, heard))
            values.update({key(value): value for value in heard})
            most |= counts
        said.clear()
        for at, count in most.items():
            for _ in range(count):
                inner.send(Inbound(values[at]))

    @inner.during(observe(Inbound(capture())))
    def wanted(turn: Turn, pattern: Pattern) -> None:
        whole = capture(None, None, pattern)
        outside = turn.at(outer.home)

        @outside.during(whole)
        def present(turn: Turn, what: Value, *_: Value) -> None:
            if passes(what):
                turn.at(inner.home).assert_(Inbound(what))

        @outside.on_message(whole)
        def heard(turn: Turn, what: Value, *_: Value) -> None:
            if passes(what):
                if not said:
                    outer.before_commit(flush)
                said.setdefault(pattern, []).append(what)


def _filter(allow: Sequence[object] | None) -> Callable[[Value], bool]:
    if allow is None:
        return lambda _: True
    matches = [matcher(pattern_of(each)) for each in allow]
    return lambda value: any(match(value) is not None for match in matches)
