"""Rules for each construct of the language, over facts ``m(key, number)``, with ``w(key)`` for each key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dataspace.rules.language.syntax import AGGREGATES
from index.values.values import Value
from tests.costs.counting import counted


def _key(number: int) -> Value:
    return counted("k", number)


def _fact(key: int, number: int) -> Value:
    return counted("m", _key(key), number)


VALUES: Final[dict[str, Callable[[int], list[Value]]]] = {
    "equal": lambda n: [_fact(0, 0) for _ in range(n)],
    "different": lambda n: [_fact(number, number) for number in range(n)],
    "of one key": lambda n: [_fact(0, number) for number in range(n)],
    "of one number": lambda n: [_fact(number, 0) for number in range(n)],
}


def present(n: int) -> list[Value]:
    """Returns what is there before."""
    return [counted("w", _key(number)) for number in range(n)]


def _aggregate(name: str) -> str:
    return {
        "count": "count()",
        "top": "top(3, $v)",
        "first": "first($v, $k)",
        "last": "last($k, $v)",
        "percentile": "percentile($v, 95)",
    }.get(name, f"{name}($v)")


RULES: Final[dict[str, tuple[str, ...]]] = {
    "no rule": (),
    "atom": ("a($k, $v) <- m($k, $v).",),
    "projection": ("a($k) <- m($k, _). b($v) <- m(_, $v). c() <- m(_, _).",),
    "constant": ("a($k) <- m($k, 0).",),
    "join": ("a($k, $v) <- m($k, $v), w($k).",),
    "self join": ("a($v, $u) <- m($k, $v), m($k, $u).",),
    "negation": ("a($k) <- w($k), not m($k, _).",),
    "negation of all": ("a($k) <- w($k), not m(_, _).",),
    "negation of another": ("a($k) <- m($k, $v), not x($k).",),
    "comparison": ("a($k, $v) <- m($k, $v), $v > -1.",),
    "comparison of two": ("a($k) <- m($k, $v), m($k, $u), $u < $v.",),
    "calculation": ("a($k, $z) <- m($k, $v), $z = $v * 2 + 1.",),
    "function": ("a(text($v), if($v > -1, $k, 0)) <- m($k, $v).",),
    "elements": ("a($x) <- m($k, $v), $x in [$v, 1, $k].",),
    "entries": ("a($x, $y) <- m($k, $v), $x: $y in {$k: $v}.",),
    "either": ("a($k) <- (m($k, _) or x($k)), w($k).",),
    "negated group": ("a($k) <- w($k), not (m($k, $v), $v > -1).",),
    "aggregate of a group": ("a($k) <- w($k), count() of (m($k, $v)) >= 2.",),
    **{f"{name} for a key": (f"a($k, {_aggregate(name)}) <- m($k, $v).",) for name in AGGREGATES},
    "maybe": ("a($k, count($v), max($v) else 0) <- w($k), maybe m($k, $v).",),
    "maybe of a group": ("a($k, count($v)) <- w($k), maybe (m($k, $v), not x($k)).",),
    "maybe of no other": ("a(count($v)) <- maybe m($k, $v).",),
    "count of all": ("a(count()) <- m($k, $v).",),
    "count distinct": ("a($k, count(distinct $v)) <- m($k, $v).",),
    "sum distinct": ("a(sum(distinct $v)) <- m($k, $v).",),
    "aggregate of derived facts": ("a($k, count()) <- m($k, $v). b(max($n)) <- a($k, $n).",),
    "chain of rules": ("a($k) <- m($k, _). b($k) <- a($k). c($k) <- b($k), not x($k).",),
    "closure": ("a($x, $y) <- m($x, $y). a($x, $z) <- a($x, $y), m($y, $z).",),
    "cycle": ("a($k) <- m($k, _). a($k) <- b($k). b($k) <- a($k).",),
    "next": ("next(a($k, $v)) <- m($k, $v).",),
    "next that keeps": ("next(a($k)) <- m($k, _). next(a($k)) <- a($k), not x($k).",),
    "send": ("send(a($k, $v)) <- m($k, $v).",),
    "strict relation": ("strict relation m(k: any, v: int). a($k) <- m($k, _).",),
    "n rules": tuple([f"a{at}($k) <- m($k, {at})." for at in range(10)]),
    "within": ("a($k) <- m($k, _) within 10 s.",),
    "within, counted": ("a($k, count()) <- m($k, $v) within 10 s.",),
    "within, average": ("a(avg($v)) <- m($k, $v) within 10 s.",),
    "within, joined": ("a($k, $v) <- m($k, $v) within 10 s, w($k).",),
    "within, in two places": ("a($k, $v) <- m($k, $v) within 10 s, m($k, $v) within 5 s.",),
    "at": ("a($k, $t) <- m($k, $v) at $t.",),
    "at, within": ("a($k, max($t)) <- m($k, $v) at $t within 10 s.",),
    "not within": ("a($k) <- w($k), not m($k, _) within 10 s.",),
    "for": ("a($k) <- (m($k, $v), $v >= 0) for 10 s.",),
    "for, of a negation": ("a($k) <- (w($k), not m($k, _)) for 10 s.",),
    "now": ("a($k) <- m($k, _) at $t, $t + 10 s <= now.",),
    "now, before": ("a($k) <- m($k, _) at $t, now < $t + 10 s.",),
    "now, of values": ("a($k, $v) <- m($k, $v), @2001-01-01T00:00:00Z + $v <= now.",),
    "final": ("final(a($m, count())) <- m($k, $v) at $t within 90 s, $m = floor($t, 10 s).",),
    "hours of a clock": (
        'a($k) <- w($k), hour(now, "Europe/Zurich") >= 0, hour(now, "Europe/Zurich") < 24.',
    ),
    "hour of a clock": ('a($k, $h) <- w($k), $h = hour(now, "Europe/Zurich").',),
    "days of a calendar": (
        'a(floor($t, "1 day", "Europe/Zurich"), count()) <- m($k, $v) at $t within 10 s.',
    ),
    "final, of a calendar": (
        'final(a($m, count())) <- m($k, $v) at $t within 2 h, $m = floor($t, "1 hour", "Europe/Zurich").',
    ),
    "count of a window in a group": ("a($k) <- w($k), count() of (m($k, _) within 10 s) >= 2.",),
    "send after a time": ("send(a($k)) <- m($k, _) at $t, $t + 10 s <= now.",),
}
"""Texts, by the name of the construct."""
