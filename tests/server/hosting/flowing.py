"""Flows that a daemon is told to host; tests name them by their module."""

from __future__ import annotations

import itertools

from dataspace import Record
from dataspace.flows.flows import Flow


def crowds(label: str = "crowd") -> Flow:
    """Counts who is present in each room."""
    flow = Flow()
    here = flow.facts("present($room, $who)")
    count = here.fold_keyed(lambda: 0, lambda n, _: n + 1, undo=lambda n, _: n - 1, lifetime="static")
    count.assert_(lambda pair: Record(label, *pair))
    return flow


def ticking() -> Flow:
    """Says how often its clock has beaten."""
    flow, beats = Flow(), itertools.count(1)
    flow.interval(0.01).map(lambda _: next(beats)).send(lambda n: Record("beat", n))
    return flow


def careless() -> Flow:
    """Divides by what it is told."""
    flow = Flow()
    flow.messages("divide($n)").map(lambda row: 1 / row[0]).send(lambda n: Record("result", n))
    return flow


def looped() -> Flow:
    """Takes away from a set what it would take away: no strata."""
    flow = Flow()
    items = flow.source(name="items")
    rest = flow["rest"]
    items.difference(rest, name="rest").for_each(print)
    return flow


def no_flow() -> str:
    """No flow."""
    return "nothing"


def unmade() -> Flow:
    """Fails while it is made."""
    raise LookupError("no such room")


def recent() -> Flow:
    """How many messages came in the last half second, and the sessions of each sender that have ended."""
    flow = Flow()
    said = flow.messages("say($who, $what)")
    count = said.window(0.5).fold(lambda: 0, lambda n, _: n + 1, undo=lambda n, _: n - 1, lifetime="static")
    count.assert_(lambda n: Record("recent", n))
    ended = said.sessions(0.3, final=True, keep=60).map(lambda pair: (pair[0][0], pair[1]))
    ended.fold_keyed(tuple, lambda so_far, what: (*so_far, what), lifetime="static").assert_(
        lambda pair: Record("ended", *pair)
    )
    return flow


def echoing() -> Flow:
    """Sends ``heard`` for each ``said``."""
    flow = Flow()
    flow.messages("said($who)").send(lambda who: Record("heard", *who))
    return flow
