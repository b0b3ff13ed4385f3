"""Rules by clocks and calendars derive what clocks show, over restarts and where clocks are put; they wake
once for each hour, not for each fact."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import pytest

from dataspace.kernel.actions import ASSERT, Action
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from dataspace.rules.engine.rebuilding import rebuild
from dataspace.rules.language.arithmetic import micros_of
from index.patterns.text import parse
from index.values.values import Record
from tests.dataspace.rules.test_times import Run
from tests.model.rules import GRID

MINUTE: Final = 60_000_000
RULES: Final = {
    "clock": "open($d) <- dev($d), weekday(now, {Z}) <= 6, hour(now, {Z}) >= 2, 18 > hour(now, {Z}).",
    "shift": "staffed($d) <- f($d, $v), hour(now, {Z}) // 6 >= $v, hour(now, {Z}) < 20.",
    "today": 'today($d, $t) <- r($d, _) at $t, $t >= floor(now, "1 day", {Z}), $t < next(now, "1 day", {Z}).',
    "counted": "n($d, $h, count($v)) <- dev($d), $h = hour(now, {Z}), maybe r($d, $v).",
    "negated": "q($d) <- dev($d), not (f($d, $v), hour(now, {Z}) < 12, $v > 1).",
    "lasting": "late($d, $w) <- f($d, _) at $t, $t + 3 h <= now, $w = weekday(now, {Z}).",
    "hours": 'final(h($m, count($v))) <- r($d, $v) at $t within 3 h, $m = floor($t, "1 hour", {Z}).',
    "days": 'final(d($m, sum($v))) <- r($d, $v) at $t within 60 h, $m = floor($t, "1 day", {Z}).',
    "parts": "y($d, weekday($t, {Z}), hour($t, {Z})) <- f($d, _) at $t.",
}
BEGINNINGS: Final = {
    "Europe/Zurich": "2026-10-24T20:40:00Z",
    "Australia/Lord_Howe": "2026-10-03T11:50:00Z",
    "America/Sao_Paulo": "2018-11-03T23:30:00Z",
    "America/St_Johns": "2010-11-06T23:10:00Z",
}
"""When a history begins, by zone: hours before clocks are put."""
STEPS: Final = (0, 1, 20, 29, 30, 60, 61, 119, 300, 1000)
"""Minutes."""
LIMITS: Final = SpaceLimits(rule_window=3 * 86_400)


class Calendar(Run):
    """A history of days in a zone."""

    def __init__(self, seed: int, zone: str) -> None:
        super().__init__(seed)
        self.zone = zone
        self.began = self.time = micros_of(datetime.fromisoformat(BEGINNINGS[zone]))
        self.space = self._made()

    def _made(self) -> Space:
        space = Space("s", limits=LIMITS)
        space.submit_timed = self.past_append
        return space

    def until(self, time: int) -> None:
        """Adds the state of the last instant alone: no rule looks back at what follows from others."""
        if self.history.times and time // GRID * GRID > self.history.times[-1]:
            self.state(time // GRID * GRID, [])

    def add(self, name: str) -> None:
        self.make([Record("rule", name, RULES[name].replace("{Z}", f'"{self.zone}"'))], [], [])

    def restart(self) -> None:
        old, self.space = self.space, self._made()
        self.space.restore({o: dict(c) for o, c in old.all_claims().items()}, old.epoch, old.time)
        epochs = [(e.number, e.time, e.added, e.messages, e.removed) for e in self.past]
        rebuild(self.space.rules.times, [], self.began, epochs, bounds=self.space.rules.bounds)

    def carry_out(self, names: list[str], steps: int) -> None:
        waiting = list(names)
        self.add(waiting.pop(0))
        for _ in range(steps):
            self.time += self.random.choice(STEPS) * MINUTE
            what = self.random.random()
            if waiting and what < 0.4:
                self.add(waiting.pop(0))
            elif what < 0.5:
                self.probe()
            elif what < 0.6:
                self.restart()
                self.probe()
            else:
                self.turn()
            self.check()


@pytest.mark.slow
@pytest.mark.parametrize("zone", BEGINNINGS)
@pytest.mark.parametrize("name", RULES)
def test_one_rule_by_a_clock(name: str, zone: str) -> None:
    for seed in range(3):
        Calendar(seed, zone).carry_out([name], 40)


@pytest.mark.slow
def test_several_rules_by_clocks() -> None:
    for seed in range(6):
        one = Calendar(seed, [*BEGINNINGS][seed % len(BEGINNINGS)])
        one.carry_out(one.random.sample([*RULES], 4), 60)


def test_a_rule_wakes_once_an_hour_whatever_the_number_of_facts() -> None:
    made, space = list[int](), Space("s")
    space.submit_timed = lambda epoch: made.append(epoch.time)
    text = 'open($s) <- shop($s), hour(now, "Europe/Zurich") >= 8, hour(now, "Europe/Zurich") < 18.'
    shops: list[Action] = [(ASSERT, at, Record("shop", at)) for at in range(2, 500)]
    begin = micros_of(datetime.fromisoformat("2026-11-02T00:00:00Z"))
    space.commit("me", [(ASSERT, 1, Record("rule", "r", text)), *shops], begin)
    assert space.rules.times.pending == 1 and space.rules.times.rows == 1
    for hour in range(24):
        space.until(begin + (hour * 60 + 59) * MINUTE)
    assert space.timed_turns == 23
    assert made == [begin + 7 * 60 * MINUTE, begin + 17 * 60 * MINUTE], "turns without change are no epochs"
    space.until(begin + 400 * 24 * 60 * MINUTE)
    assert space.timed_turns <= 25, "a long pause is no reason to make up for each hour"
    assert space.rules.times.pending == 1


def test_what_a_clock_does_not_show_yet_is_explained() -> None:
    space = Space("s")
    text = """
        open($s) <- shop($s), hour(now, "Europe/Zurich") >= 8, weekday(now, "Europe/Zurich") < 6.
        staffed($s) <- shift($s, $from), hour(now, "Europe/Zurich") >= $from.
    """
    begin = micros_of(datetime.fromisoformat("2026-11-06T20:00:00Z"))
    facts = Record("rule", "r", text), parse("shop(1)"), parse("shift(1, 22)")
    space.commit("me", [(ASSERT, at, each) for at, each in enumerate(facts)], begin)
    program = space.rules.program
    assert program is not None
    why = program.explainer().why(parse("open(1)"))
    assert 'hour(now, "Europe/Zurich") >= 8, weekday(now, "Europe/Zurich") < 6' in str(why)
    assert (
        "$hour-now-1 >= $from does not hold  with $s = 1, $from = 22, $hour-now-1 = 21"
        in program.explainer().why_not(parse("staffed(1)"))
    )
    space.until(begin + 5 * 60 * MINUTE)
    assert "not yet: in 2.2 d (2026-11-09T07:00:00Z)" in program.explainer().why_not(parse("open(1)"))
