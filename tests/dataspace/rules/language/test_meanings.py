"""What would mean something else than it looks like is refused, with what to write instead."""

from __future__ import annotations

import pytest

from dataspace.rules.language.arithmetic import calculate
from dataspace.rules.language.ordering import free
from dataspace.rules.language.parser import read_rules
from index.errors import UsageError
from index.values.freezing import freeze
from index.values.values import Map, Record, Value

MANY = ", ".join(["a()"] * 33)
REFUSED = {
    "p(avg(sum($x))) <- q($x).": "an aggregate of an aggregate",
    "p(avg(min($x))) <- q($x).": "min of one value is an aggregate",
    "p(top(2, count($x))) <- q($x).": "an aggregate of an aggregate",
    "p($y) <- q($x), $y = strlen($x).": "strlen is no function here: write len (a record is written",
    "p(sqrt($x)) <- q($x).": "sqrt is no function here: functions are len lower",
    "p($x) <- q($x), lenn($x) > 3.": "compares a record with a number: did you mean len(…)?",
    "p($x) <- q($x), $x = uper($x) + 1.": "did you mean upper(…)?",
    "p($x) <- q($x), if(point($x) < 3, 1, 2) = 1.": "point($x) < 3 compares a record with a number",
    "p(sum($x) + 1) <- q($x).": "an aggregate stands alone in a head",
    "p($x) <- q($y), $x = count($y).": "an aggregate stands alone in a head",
    "p($x) <- q($x), min($x) > 3.": "min of one value is an aggregate",
    "p($x) <- q($x), len($x, 1) > 3.": "len takes 1 argument, not 2",
    "p($x) <- q($x), $x = split($x).": "split takes 2 arguments, not 1",
    "p($x) <- q($x), $x = split($x, 3).": "split takes a text as argument 2, not 3, a number",
    "p($x) <- q($x), $x = abs(lower($x)).": "abs takes a number, not lower($x), a text",
    "p(len(3)) <- q().": "len takes a text or bytes or a sequence or a map, not 3, a number",
    "p(if($x > 1, 2)) <- q($x).": "if takes a condition and two values, as in if($n > 9, 9, $n)",
    "p($x) <- q($x), r($x + 1).": "a fact is asked for by a pattern, without calculations",
    "p({1: 2, 1: $x}) <- q($x).": "a key that this map already has",
    'p($x) <- q($x), $x = number("many").': 'number reads no number in "many"',
    "p($y) <- q($x), $y = f($x) + 1.": "f($x) is no number and no text",
    "next(send(p($x))) <- q($x).": "send stands alone around a head",
    "p($x) <- next(q($x)).": "next stands in heads only",
    "p($x) <- q($x), not send(r($x)).": "send stands in heads only",
    'p("a" + 1) <- q().': 'cannot calculate "a" + 1: a text and a number',
    "p($x) <- q($x), $x > 1 / 0.": "division by zero",
    "let k = 1. let k = 2. p($x) <- q($x, k).": "k has been named already (line 1, column 16)",
    "p($x-1) <- q($x).": "with blanks around the minus, $x - 1 is a difference",
    "p($y) <- q($x), $y = $x-1.": "$x-1 in $y = $x-1 is bound by no positive part of the body: with blanks",
    "p($z) <- q($x), $z = $y + 1, $y = $x-1.": "with blanks around the minus, $x - 1 is a difference",
    "p($x) <- q($x), !r($x).": "a negation is written not, as in not closed($x)",
    "p($x) <- q($x) or r($x).": "alternatives stand in parentheses: (old($x) or",
    "p($x) <- q($x) || r($x).": "alternatives stand in parentheses: (old($x) or",
    "p($x) <- q($x); r($x).": "alternatives stand in parentheses: (old($x) or",
    "p($x) <- (q($x) | r($x)).": "alternatives have the word or between them",
    "p($x) <- (q($x), r($x)).": "a group in parentheses has or in it, or says for how long",
    "p($x) <- (q($x) or r($y)).": "$x is bound neither in every branch of (q($x) or r($y)) nor beside it",
    "p($x) <- q($x), not (r($y), $y > $z).": "$z is bound neither in not (r($y), $y > $z) nor beside it",
    "p($x) <- q($x), not(r($x)).": 'write not (…) with a blank for a negation, or "not"(…) for a fact',
    "p($x) <- q($x), not (r($x)) within 3 s.": "within stands behind one fact: derive the group by a rule",
    "p($x) <- q($x), count($y) of (r($x, $y)).": "compare it, or give it a name: count($y) of (…) = $value",
    "p($x) <- q($x), count($y) of r($x, $y) > 3.": "of takes literals in parentheses",
    "p($x) <- (q($x) or r($x) within 5 s) for 4 s.": "time within time",
    "p($x) <- (q($x), not (r($x) within 5 s)) for 4 s.": "time within time",
    "p() <- " + "(a() or " * 33 + "b()" + ")" * 33 + ".": "groups nested deeper than 32 levels",
    "p() <- ("
    + ", ".join(["a()"] * 33)
    + " or "
    + ", ".join(["a()"] * 33)
    + ").": "66 literals in one rule, limit 64",
    "p($x) <- q($y), $x in 3.": "$x in 3 goes through a sequence, not a number",
    "p($x) <- q($y), $x in {1: $y}.": "not a map: for a map write $key: $value in …",
    "p($x) <- q($y), $x: $z in [$y].": "goes through a map, not a sequence",
    "p($x) <- q($y), $x in $l.": "$x in the head is bound by no positive part",
    "p($x) <- q($y), $x in [$x].": "is bound by no positive part",
    " <- .": "expected the head of a rule, such as reach($x, $y), before '<-' (line 1, column 2)",
    "<- q($x).": "expected the head of a rule, such as reach($x, $y), before '<-'",
    "send(<- q($x)).": "expected the head of a rule, such as reach($x, $y), before '<-'",
    "p($x) <- .": "expected what the rule needs behind '<-', such as edge($x, $y), found '.'",
    "p($x) <-": "expected what the rule needs behind '<-', such as edge($x, $y), found the end",
    "p($x) <- q($x), .": "expected what the rule needs behind ',', such as edge($x, $y), found '.'",
    "p($x) <- , q($x).": "expected what the rule needs behind '<-', such as edge($x, $y), found ','",
    "hot($d) <- average($d, avg($t)), $t > 3.": (
        "avg($t) in a body would be a record, as aggregates stand in heads: derive it by a rule of its own, "
        "average($d, avg($t)) <- …, and write average($d, $avg) here"
    ),
    "hot($d) <- d($d), not best($d, top(3, $t)), t($t).": "and write best($d, $top) here",
    "p($sum) <- q($sum, sum($n)).": "and write q($sum, $sum2) here",
    "old($x) <- q($x, $t), $t < now() - 60.": "now() would be a record; the present time is the word now",
    "p($x, today()) <- q($x).": "ask for that: today($t)",
    "p(sum()) <- q($x).": "sum() of what? name a variable of the body, such as sum($x)",
    "p(count() - 1) <- q($x).": "an aggregate stands alone in a head",
    "p(count(distinct)) <- q($x).": "a bare word is no value",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_means_something_else_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_rules(text)
    assert REFUSED[text] in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "p($y) <- q($x), $y = point($x, 1).",
        "p(point($x)) <- q($x).",
        "p($x) <- order($x), next($x, 1).",
        "p($x) <- order($x, $t), now($t).",
        "p($x) <- order($x, avg(3), [avg($y)]).",
        "p($x) <- avg($x), order($x, top($y), sum($x, $y)).",
        "let k = 1. let j = 2. p($x) <- q($x, k, j).",
        "p($x-y) <- q($x-y).",
        "p(count($x), sum($x)) <- q($x).",
        "orders($x) <- order($x), original($x).",
        'p($x + "a") <- q($x).',
        "p($x, $k) <- q($l), $x in $l, $k: $v in {$x: 1, 2: [$x]}, $v in [1].",
        'p($x) <- "not"($x), not "not"($x, 1).',
        "p($x) <- (q($x), not r($x) or r($x), $x > 3), not (q($x), (a($x) or b($x))).",
        "p($n) <- $n = count() of (q($x), ($x > 3 or r($x))), 3 < max($y) of (r($y)).",
        "p($x) <- ((q($x) or r($x)), s($x)) for 4 s.",
        "p($x) <- (q($x) or r($x) within 3 s), ($x + 1) * 2 = 4.",
        "p(count(), count(distinct $x), top(2, distinct -$x)) <- q($x).",
        "let distinct = 3. p(count(distinct)) <- q($x).",
        "p(count(distinct($x))) <- q($x).",
        'p("len"($x), ["sum"($x)]) <- "len"($x).',
        "p($x) <- q($x), r(len($x), min($x, $x)).",
    ],
)
def test_what_means_what_it_looks_like_is_read(text: str) -> None:
    rules = read_rules(text)
    assert read_rules(" ".join(map(str, rules))) == rules


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        ("a", 1, 'cannot calculate "a" + 1: a text and a number'),
        (None, 1, "cannot calculate None + 1: null and a number"),
        (True, 1, "cannot calculate true + 1: a truth and a number"),
        (freeze([1]), Map({"a": 1}), ": a sequence and a map"),
        (Record("p", 1), b"a", ": a record and bytes"),
    ],
)
def test_what_cannot_be_calculated_is_said_as_it_is_written(left: Value, right: Value, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        calculate("+", left, right, free)
    assert said in str(caught.value)
