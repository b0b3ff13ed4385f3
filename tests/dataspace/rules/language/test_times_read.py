"""Times in rules are read, printed and refused with what to write instead."""

import pytest

from dataspace.rules import Program, read_rules
from index.errors import UsageError

READ = {
    "p($d) <- q($d, _) within 60 s.": "p($d) <- q($d, _) within 1 min.",
    "p($d, $t) <- q($d) at $t within 1500 ms.": "p($d, $t) <- q($d) at $t within 1500 ms.",
    "p($d) <- d($d), not q($d) within 2 h.": "p($d) <- d($d), not q($d) within 2 h.",
    "p($d) <- (q($d, $v), $v > 9, not r($d)) for 30 s.": "p($d) <- (q($d, $v), $v > 9, not r($d)) for 30 s.",
    "p($d) <- (q($d)) for 1 d.": "p($d) <- (q($d)) for 1 d.",
    "let long = 1.5 min. p($d) <- q($d) within long.": "p($d) <- q($d) within 90 s.",
    "let long = 90. p($d) <- q($d) within long.": "p($d) <- q($d) within 90 s.",
    "p($j) <- q($j, $t), $t <= now.": "p($j) <- q($j, $t), $t <= now.",
    "p($j) <- q($j) at $t, now < $t + 1 min.": "p($j) <- q($j) at $t, now < ($t + 60).",
    "p(floor($t, 60 s)) <- q(_) at $t.": "p(floor($t, 60)) <- q(_) at $t.",
    "final(p($m, count($d))) <- q($d) at $t within 3 min, $m = floor($t, 1 min).": (
        "final(p($m, count($d))) <- q($d) at $t within 3 min, $m = floor($t, 60)."
    ),
    "at($x) <- within($x), for($x), not now($x), final($x).": (
        "at($x) <- within($x), for($x), not now($x), final($x)."
    ),
    "final($x) <- q($x).": "final($x) <- q($x).",
    "p($x) <- q($x), ($x + 1) * 2 = 4.": "p($x) <- q($x), (($x + 1) * 2) = 4.",
}


@pytest.mark.parametrize("text", READ)
def test_a_rule_prints_as_the_text_that_it_is_read_from(text: str) -> None:
    (rule,) = read_rules(text)
    assert str(rule) == READ[text]
    assert read_rules(str(rule)) == (rule,)


REFUSED = {
    "p($x) <- q($x), now + 60 > $x.": "write $x - 60 < now",
    "p($x) <- q($x), now - 60 > $x.": "write $x + 60 < now",
    "p($x) <- q($x), $x = now.": "write <= or >",
    "p($x) <- q($x), now < now.": "now stands alone on one side",
    "p($x) <- q($x) at $t, $t > 5.": "compares a time with a number",
    "p($x) <- q($x) for 5 s.": "for stands behind a group in parentheses",
    "p($x) <- (q($x), r($x)).": "says for how long",
    "p($x) <- q($x) within 5.": "needs a unit",
    "p($x) <- q($x) within 5 m.": "write min",
    "p($x) <- q($x) within 0 s.": "more than nothing",
    "p($x) <- q($x) within 367 d.": "at most 366 d",
    "p($x) <- q($x) within $x.": "expected a duration",
    "p($x) <- $x within 5 s.": "name a label",
    "p($x) <- (q($x) within 5 s) for 4 s.": "derive q($x) within 5 s by a rule of its own",
    "p($x) <- (q($x), $x < now) for 4 s.": "time within time",
    "p($x) <- (not q(1)) for 4 s, r($x).": "needs a fact that holds",
    "p($x) <- r($x), (q($y), not s($x)) for 4 s.": "$x in not s($x) is bound by no positive part of",
    "p($x) <- $x = 1, (q($y), $y > $x) for 4 s.": "$x in $y > $x is bound by no positive part of",
    "p($x) <- r($x), (q($y), $z in $x) for 4 s.": "$z in $z in $x is bound by no positive part of",
    "final(p($x)) <- q($x).": "final takes one atom with at and within",
    "final(p($m)) <- q(_) at $t within 1 min, $m = floor($t, 1 min).": "longer than its windows",
    "p(now) <- q(1).": "compare it in the body",
    "let now = 3.": "no name of a constant",
    "let long = 3 hours.": "no unit hours: write h",
    'p($m) <- q(1) at $t, $m = floor($t, 1 day, "UTC").': 'floor($t, "1 day", "Europe/Zurich")',
    "p($m) <- q(1) at $t, $m = floor($t, 2 months).": "no unit months: windows of a calendar",
    'p($x) <- q($x), minute(now, "UTC") > 3.': "'minute' is no function, and a clock shows year month day",
    "p($x) <- q($x), $x > ": "expected a value, found the end of the text",
    "p($x, ": "expected a value, found the end of the text",
    "p($x) <- q($x), not r($x) at $t.": "not with at",
    "p($x, floor($x, 1, 2)) <- q($x).": (
        'floor takes a time, a unit and a zone, as in floor($t, "1 month", "Europe/Zurich")'
    ),
    "p(floor($x, 1, 2, 3)) <- q($x).": "floor takes 1 to 3 arguments, not 4",
    'p(floor($x, "1 day")) <- q($x).': "floor takes a time, a unit and a zone",
    "p(hour($x)) <- q($x).": 'hour takes a time and a zone, as in hour($t, "Europe/Zurich")',
    "p(hour($x, $y)) <- q($x, $y).": "hour: a zone and a unit are texts, or constants that let names",
    'p(hour($x, "Zurich")) <- q($x).': "did you mean Europe/Zurich?",
    'p(next($x, "1 decade", "UTC")) <- q($x).': "no windows of '1 decade': units are 1 hour, 1 day, 1 week",
    'p(year("a", "UTC")) <- q($x).': 'year takes a time as argument 1, not "a", a text',
    'p(hour(now, "UTC")) <- q($x).': 'give it a name in the body, $x = hour(now, "UTC")',
    'p($x) <- q($y), $x in [hour(now, "UTC")].': "compare it, as in $t <= now",
    'p($x) <- (q($x), hour(now, "UTC") > 3) for 5 s.': "time within time",
    'final(p($m, count())) <- q($x) at $t within 20 d, $m = floor($t, "1 month", "UTC").': (
        "final needs within to be longer than its windows, which last up to 748 h"
    ),
    'final(p($m, count())) <- q() at $t within 2 h, $m = floor($t, "1 hour", "UTC"), hour(now, "UTC") > 3.': (
        "final takes one atom with at and within, and no other"
    ),
    "final(p($m, count($x))) <- maybe q($x) at $t within 3 min, $m = floor($t, 1 min).": (
        "final takes one atom with at and within, and no other"
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_means_nothing_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(UsageError) as found:
        read_rules(text)
    assert REFUSED[text] in str(found.value)


def test_time_in_a_cycle_is_refused() -> None:
    program = Program()
    program.add("own", "p($x) <- p($x) within 10 s.")
    (entry,) = program.entries.values()
    assert "break it with next" in entry.error
