"""Rules that are drawn at random, from all that a body and a head may have.

Always: a text is one that the reader takes, and no calculation in it can fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from dataspace.rules.language.parser import read_rules
from index.errors import UsageError
from index.values.values import Record, Value

SPANS: Final = (10, 15, 20, 30, 50)
"""Milliseconds."""
WINDOW: Final = 40

Draw = Callable[[Random], str]


def _span(random: Random) -> str:
    return f"{random.choice(SPANS)} ms"


def _atom(random: Random) -> str:
    return random.choice(["m($k, $v)", "m($k, $v)", "m($k, _)", "m(_, $v)", "n($k)", "j($v)", "m($k, 1)"])


def _within(random: Random) -> str:
    return f"{_atom(random)} within {_span(random)}"


def _at(random: Random) -> str:
    return f"{_atom(random)} at $t{random.choice(['', '', f' within {_span(random)}'])}"


def _lasting(random: Random) -> str:
    more = random.choice(["", ", $v > 0", ", n($k)", ", not n($k)", ", j($v)"])
    return f"({_atom(random)}{more}) for {_span(random)}"


def _negation(random: Random) -> str:
    within = random.choice(["", f" within {_span(random)}"])
    group = random.choice(["n($k), j($v)", "m($k, $w), $w > 0", "n($k) or j($v)", "m($k, _) within 20 ms"])
    return random.choice([f"not {_atom(random)}{within}", f"not ({group})"])


def _comparison(random: Random) -> str:
    return random.choice(["$v > 0", "$v = 1", '$k != "a"', "$v < 1", "$x = $v + 1", "$x in [$v, 1, 1]"])


def _about_now(random: Random) -> str:
    span, operator = _span(random), random.choice(["<", "<=", ">", ">="])
    return random.choice([f"$t + {span} {operator} now", f"now {operator} $t + {span}"])


def _group(random: Random) -> str:
    inside = random.choice([_atom(random), f"{_within(random)}", "m($k, $w), not j($w)"])
    return random.choice(
        [
            f"({_atom(random)} or {_atom(random)})",
            f"count() of ({inside}) {random.choice(['= $c', '>= 2', '= 1'])}",
            "max($w) of (m($k, $w)) = $c",
        ]
    )


def _maybe(random: Random) -> str:
    atom = random.choice(["m($k, $w)", "m($u, $w)", "j($w)", "m($k, $w), $w > 0", "m($k, $w), not j($w)"])
    timed = "" if "," in atom.partition(")")[2] else random.choice(["", f" within {_span(random)}"])
    return f"maybe {atom}{timed}" if ")," not in atom else f"maybe ({atom})"


LITERALS: Final[dict[str, Draw]] = {
    "atom": _atom,
    "within": _within,
    "at": _at,
    "for": _lasting,
    "not": _negation,
    "comparison": _comparison,
    "now": _about_now,
    "group": _group,
    "maybe": _maybe,
}
"""What a body may have, by the name of the construct."""

HEADS: Final = {
    "assert": ("a($k)", "b($k, $v)", "a($v)", "b($k, $c)", "b($k, $x)", "b($k, $t)"),
    "aggregate": (
        "b($k, count())",
        "c(count())",
        "c(sum($v))",
        "b($k, max($v))",
        "b($k, min($v))",
        "b($k, collect($v))",
        "b($k, top(2, $v))",
        "c(avg($v))",
        "c(count(distinct $k))",
        "c(sum(distinct $v))",
        "b($k, last($v, $k))",
        "b($k, stddev($v))",
        "b($k, percentile($v, 60))",
        "c(stddev($v) else 0)",
        "c(first($k, $v))",
        "b($k, last($v, $t))",
    ),
    "maybe": (
        "b($k, count($w))",
        "c(sum($w))",
        "b($v, max($w) else -1)",
        "b($k, collect($w))",
        "c(count(distinct $w))",
    ),
    "send": ("send(s($k))", "send(s($v))", "send(s($c))"),
    "next": ("next(n($k))", "next(a($k))"),
}
"""Heads, by what becomes of them."""


def _final(random: Random) -> str:
    head = random.choice(["b($m, count())", "b($m, sum($v))", "b($m, max($v))"])
    span = WINDOW + random.choice(SPANS)
    return f"final({head}) <- m($k, $v) at $t within {span} ms, $m = floor($t, {WINDOW} ms)."


def rule(random: Random, kinds: Sequence[str]) -> str:
    """Returns a rule with literals and a head of these kinds; at least one atom is among its literals."""
    while True:
        text = _final(random) if "final" in kinds and random.random() < 0.2 else _rule(random, kinds)
        try:
            read_rules(text)
        except UsageError:
            continue
        return text


def _rule(random: Random, kinds: Sequence[str]) -> str:
    bodies = [each for each in kinds if each in LITERALS]
    heads = [each for each in kinds if each in HEADS]
    drawn = [LITERALS[random.choice(bodies)](random) for _ in range(random.choice([1, 2, 2, 3]))]
    return f"{random.choice(HEADS[random.choice(heads)])} <- {', '.join(drawn)}."


SECOND: Final = (
    "d($x) <- a($x).",
    "d($x) <- a($x) within 20 ms.",
    "d($x) <- n($x), not a($x).",
    "d(count()) <- b(_, _).",
)

CYCLE: Final = "cycle"
CYCLES: Final = (
    "p($x, $y) <- e($x, $y). p($x, $z) <- p($x, $y), e($y, $z).",
    "p($x, $y) <- e($x, $y). p($x, $z) <- p($x, $y), p($y, $z).",
    "p($x) <- j($x). p($y) <- p($x), e($x, $y).",
    "p($x) <- j($x). q($y) <- p($x), e($x, $y). p($y) <- q($x), e($x, $y).",
    "t($x, $z) <- e($x, $y), e($y, $z).",
    "p($x) <- j($x). p($y) <- p($x), e($x, $y). d($x) <- e($x, _), not p($x).",
    "t($x) <- e($x, $y), e($y, $x), e($x, $x).",
)
"""Texts over edges: what follows from itself, and joins of a relation with itself."""


def text(random: Random, kinds: Sequence[str]) -> str:
    """Returns a text of one or two rules; the second may go on from what the first derives."""
    if CYCLE in kinds:
        return random.choice(CYCLES)
    if RESTING in kinds:
        return random.choice(RESTS)
    if "next" in kinds and random.random() < 0.4:
        return random.choice(KEEPING)
    first = rule(random, kinds)
    return first if random.random() < 0.7 else f"{first} {random.choice(SECOND)}"


KEEPING: Final = (
    "next(n($k)) <- n($k), not j(0).",
    "next(n($k)) <- n($k), not m($k, 1).",
    "next(a($v)) <- a($v), not j($v). next(a($v)) <- j($v), n(_).",
    "next(n($k)) <- n($k). next(b($k, 0)) <- b($k, 1). next(b($k, 1)) <- b($k, 0), j(0).",
)
"""Texts whose facts hold because they held."""

RESTING: Final = "resting"
RESTS: Final = (
    "next(n($k)) <- n($k), not m($k, 1).",
    "next(n($k)) <- m($k, 1), not m($k, 0).",
    "next(a($v)) <- a($v), not q($v, _). next(a($v)) <- q($v, $v).",
    "next(a($k)) <- n($k). d($k) <- a($k), not m($k, _).",
    'next(c(0)) <- n("a"). next(c($x)) <- c($v), $v < 3, $x = $v + 1.',
    "next(b($k, count())) <- m($k, _).",
    "next(a($k)) <- n($k). send(s($k)) <- a($k).",
    "next(a($k)) <- n($k) within 30 ms.",
    "next(a($k)) <- a($k), not m($k, 0). next(a($k)) <- (n($k), m($k, 1)) for 20 ms.",
)
"""Texts with ``next`` that ask for no more turns after some, any of them together: at a daemon that makes one
after the other without end there is no moment at which everything is known."""

ARITIES: Final = {"m": 2, "b": 2, "n": 1, "a": 1, "j": 1, "e": 2}


KEYS: Final = ("a", "b")


def fact(random: Random, labels: Sequence[str]) -> Value:
    """Returns a fact with one of these labels."""
    key, number = random.choice(KEYS), random.randrange(2)
    match random.choice(labels):
        case "m" | "b" as label:
            return Record(label, key, number)
        case "n" | "a" as label:
            return Record(label, key)
        case "e":
            return Record("e", random.randrange(3), random.randrange(3))
        case "w":
            fields = [random.choice([key, number, (key, number)]) for _ in range(random.choice([3, 4]))]
            return Record("w", *fields)
    return Record("j", number)


def pattern(random: Random, labels: Sequence[str]) -> str:
    """Returns a pattern of facts with these labels."""
    label = random.choice(labels)
    if random.random() < 0.05:
        return random.choice(["_", "$x"])
    count = ARITIES.get(label) or random.choice([2, 3, 3, 4])
    made = f"{label}({', '.join([_field(random) for _ in range(count)])})"
    return f"exact({made})" if random.random() < 0.1 else made


def neighbour(text: str) -> str:
    """Returns a pattern that compares the same parts as another one, and captures fewer."""
    return text.replace("$z:", "_:")


def _field(random: Random) -> str:
    plain = ["_", "$x", "$y", "$x", '"a"', "0", "1", "$z:int", "_:int", "$z:str", "$z:int"]
    return random.choice([*plain, "[$x]", '["a", $y]', "[_, 1]", 'exact(["b"])'])
