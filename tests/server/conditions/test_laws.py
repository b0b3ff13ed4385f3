"""A conditional turn happens if and only if what it expects holds, by the plainest reckoning."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import trio
from hypothesis import given, settings, strategies as st

import dataspace
from dataspace import ExpectationFailed, Record, absent, exactly, unchanged
from dataspace.client.session.turns import Ticket
from dataspace.kernel.expectations import Expectation
from index.values.values import Value, key
from server.config.model import Config
from server.daemon.serve import serve
from tests.model.conditions import holds
from tests.model.patterns import match

FACTS: Final = [Record("p", a, b) for a in (0, 1) for b in (0, True, 1.0)] + [Record("q", 0)]
PATTERNS: Final = [
    "p(0, _)",
    "p(_, $b)",
    "p($a, $b)",
    "p(0, 1.0)",
    "q($)",
    "q(_)",
    "$all",
    "p($x, $x)",
    "none(_)",
]
Row = tuple[Value, ...]


@dataclass
class Oracle:
    """Facts as a list, and every change that was made: nothing is clever here."""

    facts: list[Value] = field(default_factory=list)
    changes: list[tuple[int, Value]] = field(default_factory=list)

    def rows(self, pattern: Value) -> list[Row]:
        found = [match(pattern, fact) for fact in self.facts]
        return list({key(row): row for row in found if row is not None}.values())

    def holds(self, expected: Expectation) -> bool:
        return holds(expected.kind, expected.pattern, expected.argument, self.facts, self.changes)

    def apply(self, epoch: int, came: Sequence[Value], went: Sequence[Value]) -> None:
        for fact in came:
            if not self._has(fact):
                self.changes.append((epoch, fact))
            self.facts.append(fact)
        for fact in went:
            at = next(at for at, each in enumerate(self.facts) if key(each) == key(fact))
            del self.facts[at]
            if not self._has(fact):
                self.changes.append((epoch, fact))

    def _has(self, fact: Value) -> bool:
        return any(key(each) == key(fact) for each in self.facts)


Step = tuple[str, int, list[tuple[int, int, int, bool]]]
"""``assert`` or ``retract``, which fact or claim, and what is expected: kind, pattern, how far back, whether
the rows are those of the last state that is known."""

steps: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.sampled_from(["assert", "assert", "retract"]),
        st.integers(0, 20),
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, len(PATTERNS) - 1), st.integers(0, 3), st.booleans()),
            max_size=2,
        ),
    ),
    max_size=12,
)


def _expectations(oracle: Oracle, epoch: int, stated: list[tuple[int, int, int, bool]]) -> list[Expectation]:
    made = []
    for kind, at, back, is_known in stated:
        pattern = PATTERNS[at]
        if kind == 0:
            made.append(absent(pattern))
        elif kind == 1:
            rows = oracle.rows(exactly(pattern, []).pattern)
            made.append(exactly(pattern, rows if is_known else rows[:-1]))
        else:
            made.append(unchanged(pattern, since=max(0, epoch - back)))
    return made


async def _play(data: Path, plan: list[Step]) -> None:
    oracle, epoch = Oracle(), 0
    accepted: dict[int, list[Expectation]] = {}
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(serve, Config(("tcp:127.0.0.1:0",), data))
        async with dataspace.connect(url, name="law") as space:
            claims: list[dataspace.Claim] = []
            for verb, at, stated in plan:
                expect = _expectations(oracle, epoch, stated)
                draft = space.draft(expect=expect)
                gone = claims[at % len(claims)] if verb == "retract" and claims else None
                came = [] if gone is not None else [draft.assert_(FACTS[at % len(FACTS)])]
                if gone is not None:
                    draft.retract(gone)
                should = all(oracle.holds(each) for each in expect)
                before = epoch
                try:
                    epoch = await space.commit(draft)
                except ExpectationFailed as failure:
                    assert not should, (expect, oracle)
                    assert not oracle.holds(expect[failure.number - 1])
                    assert all(oracle.holds(each) for each in expect[: failure.number - 1])
                    continue
                assert should, (expect, oracle)
                oracle.apply(epoch, [each.value for each in came], [gone.value] if gone else [])
                claims += came
                if gone is not None:
                    claims.remove(gone)
                if epoch > before:
                    accepted[epoch] = expect
            await _replay(space, epoch, accepted)
        nursery.cancel_scope.cancel()


async def _replay(space: dataspace.RemoteSpace, newest: int, accepted: dict[int, list[Expectation]]) -> None:
    """By the log, each expectation that was accepted held in the state before its turn."""
    past = Oracle()
    async with space.observe("$fact", after=0, upto=newest, quiet=True, durable=True) as observation:
        async for epoch in observation.epochs():
            for each in accepted.pop(epoch.number, []):
                assert past.holds(each)
            past.apply(epoch.number, [row[0] for row in epoch.added], [row[0] for row in epoch.removed])
    assert not accepted


@pytest.mark.slow
@settings(max_examples=20)
@given(steps)
def test_a_turn_happens_if_and_only_if_what_it_expects_holds(plan: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as data:
        trio.run(_play, Path(data), plan)


async def test_of_turns_that_are_sent_together_one_takes_what_all_want(url: str) -> None:
    """Expectations are judged in the order of the turns, each in the state that the one before has left."""
    async with dataspace.connect(url) as space, dataspace.connect(url) as other:
        tickets: list[Ticket] = []
        for at in range(40):
            draft = (space if at % 2 else other).draft(expect=[absent("taken(_)")])
            draft.assert_(Record("taken", at))
            tickets.append((space if at % 2 else other).submit_nowait(draft))
        outcomes = []
        for ticket in tickets:
            try:
                outcomes.append(await ticket.wait())
            except ExpectationFailed as failure:
                assert failure.count == 1
        assert len(outcomes) == 1
        assert len(await space.matches("taken($)")) == 1
