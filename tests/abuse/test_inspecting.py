"""Those who may inspect see only what they may observe; others see numbers and no names."""

from __future__ import annotations

import pytest

from dataspace.kernel.actions import ASSERT, RETRACT
from dataspace.wire import packets as p
from index.patterns.patterns import capture
from index.values.values import Map, Record
from tests.abuse.tenants import ADMIN
from tests.abuse.visits import Visits

pytestmark = pytest.mark.slow

WITHHELD = ("data", "process", "readers", "addresses", "costliest_rule", "principals")


def test_status_reveals_paths_processes_and_names_to_inspectors_alone(visits: Visits) -> None:
    status = visits.come("viewer").request("status")
    assert isinstance(status, Map)
    assert [name for name in WITHHELD if name in status] == []
    assert "epoch" in status
    everything = visits.come(ADMIN).request("status")
    assert isinstance(everything, Map) and set(WITHHELD) <= set(everything)
    principals = everything["principals"]
    assert isinstance(principals, Map)
    mine = principals["token:admin"]
    assert isinstance(mine, Map) and isinstance(mine["connections"], int) and mine["connections"] > 0


def test_a_drawing_of_the_index_shows_what_the_token_may_observe(visits: Visits) -> None:
    admin, inspector = visits.come(ADMIN), visits.come("inspector")
    mark = visits.stage.oracle.mark("pattern", ADMIN)
    stream = admin.open({"pattern": Record("of_vault", mark, capture("x"))})
    for form in ("text", "mermaid", "dot"):
        answer = inspector.request("index", form=form, most=1000)
        assert isinstance(answer, str) and "withheld" in answer
    admin.say(p.Abort(stream, "", True))
    admin.settle()


ASKED = ("explain", "why", "why-not", "graph", "monotone")


def test_answers_about_rules_show_what_the_token_may_observe(visits: Visits) -> None:
    """The oracle searches each answer for the texts that are marked."""
    admin, inspector = visits.come(ADMIN), visits.come("inspector")
    mark, derived = visits.stage.oracle.mark, Record("of_inspector", 7)
    fact, rule = mark("fact", ADMIN), mark("rule", ADMIN)
    text = f'of_inspector($x) <- of_vault("{fact}", $x), not of_vault("{fact}", 0).'
    vault = Record("of_vault", fact, 7)
    admin.turn((ASSERT, 0, vault), (ASSERT, 1, Record("rule", rule, text)), owner="vault")
    assert visits.facts("of_inspector") == [(7,)]
    patterns = Record("of_vault", capture("x"), 7), Record("rule", capture("x"), capture("y")), capture("x")
    for form in ("text", "rows"):
        for ask in ASKED:
            for about in (derived, *patterns):
                inspector.asked("rules", ask=ask, about=about, form=form)
        told = inspector.request("rules", ask="why", about=derived, form=form)
        assert "withheld" in repr(told)
        everything = admin.request("rules", ask="why", about=derived, form=form)
        assert fact in repr(everything) and "withheld" not in repr(everything)
    admin.turn((RETRACT, 0), (RETRACT, 1), owner="vault")
