"""Functions of the host are called as declared, and whatever one does ends no more than its rule."""

from __future__ import annotations

import enum
import itertools
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn

import pytest

from dataspace.rules.engine.program import Program
from dataspace.rules.language.functions import Function
from dataspace.rules.language.hosted import (
    MAX_ARGUMENTS,
    UNCHARGED,
    TooSlow,
    UnknownFunction,
    host_function,
)
from dataspace.rules.language.parser import read_rules
from dataspace.rules.relations.budgets import Bounds
from index.errors import UsageError
from index.values.values import Map, Record, Value, key

CLASSES: dict[str, list[Any]] = {
    "bool": [True],
    "int": [3, -(1 << 4095)],
    "float": [2.5, float("nan"), float("inf")],
    "str": ["", "a"],
    "bytes": [b"a"],
    "time": [datetime(2026, 1, 1, tzinfo=UTC)],
    "record": [Record("p", 1)],
    "seq": [(), (1, ("a",))],
    "map": [Map(), Map({"k": 1})],
    "null": [None],
}
"""Values of each class; unions and ``number`` are made of them."""

DECLARED = {**{each: (each,) for each in CLASSES}, "number": ("int", "float"), "any": tuple(CLASSES)}
DECLARED |= {"str|null": ("str", "null"), "int|seq|map": ("int", "seq", "map")}


def functions(
    run: Callable[..., Any], takes: tuple[str, ...] = ("any",), gives: str = "any", **more: Any
) -> dict[str, Function]:
    return {"host.f": host_function("host.f", run, takes, gives, **more)}


def same(value: Any) -> Any:
    return value


def paid(_: int) -> None:
    """Takes any pay."""


@pytest.mark.parametrize("declared", DECLARED)
def test_arguments_and_results_are_held_to_their_declared_classes(declared: str) -> None:
    taking = host_function("host.f", same, [declared], "any")
    giving = host_function("host.f", same, ["any"], declared)
    for of_class, values in CLASSES.items():
        for value in values:
            if of_class in DECLARED[declared]:
                assert key(taking.apply(paid, value)) == key(giving.apply(paid, value)) == key(value)
                continue
            with pytest.raises(UsageError, match=r"host\.f takes .*, not "):
                taking.apply(paid, value)
            with pytest.raises(UsageError, match=r"host\.f gives .*, as declared, but gave "):
                giving.apply(paid, value)


def test_a_union_is_named_whole() -> None:
    function = host_function("host.f", lambda a, b: None, ["any", "str|null"], "int")
    with pytest.raises(UsageError) as refused:
        function.apply(paid, 1, 2.5)
    assert str(refused.value) == "host.f takes str or null as argument 2, not 2.5, a number"
    with pytest.raises(UsageError) as refused:
        function.apply(paid, 1, "a")
    assert str(refused.value) == "host.f gives int, as declared, but gave None, null"


class Colour(enum.IntEnum):
    RED = 1


MADE: list[tuple[Any, Value]] = [
    ([1, [2, {"k": []}]], (1, (2, Map({"k": ()})))),
    ({"a": [1]}, Map({"a": (1,)})),
    (Record("p", 1), Record("p", 1)),
]
REFUSED: list[tuple[Any, str]] = [
    (Colour.RED, "is no value"),
    (object(), "is no value"),
    ({1, 2}, "is no value"),
    (bytearray(b"a"), "is no value"),
    (datetime(2026, 1, 1), "a time without a zone"),
    ("\ud800", "lone surrogate"),
    (1 << 4096, "a number of more than 4096 bits"),
    ("a" * 65_537, "gave 65537 characters, limit 65536"),
    (b"a" * 65_537, "gave 65537 characters, limit 65536"),
    ((1,) * 65_537, "a value of more than 65536 elements"),
]


def test_lists_and_dicts_become_values_and_what_is_none_is_refused() -> None:
    for made, value in MADE:
        found = functions(lambda _, made=made: made)["host.f"].apply(paid, 1)
        assert key(found) == key(value) and found.__class__ is value.__class__
    for made, said in REFUSED:
        with pytest.raises(UsageError, match=said):
            functions(lambda _, made=made: made)["host.f"].apply(paid, 1)


def test_a_result_that_is_nested_too_deeply_suspends_its_rule() -> None:
    deep: list[Any] = []
    for _ in range(60):
        deep = [deep]
    assert "nested too deeply" in suspended(lambda _: deep)


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def raising(error: BaseException) -> Callable[[Value], NoReturn]:
    def run(_: Value) -> NoReturn:
        raise error

    return run


def suspended(run: Callable[..., Any], **more: Any) -> str:
    """Returns why a rule is suspended that calls a function; another rule goes on."""
    program = Program(functions=functions(run, **more))
    program.add("r", "p(host.f($x)) <- v($x).")
    program.add("s", "s($x) <- v($x).")
    assert program.tick([Record("v", 1)]).added == [Record("s", 1)]
    errors = {entry.name: entry.error for entry in program.entries.values()}
    assert errors.pop("s") == ""
    return errors["r"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no road"), "host.f raised ValueError: no road"),
        (KeyError("x"), "host.f raised KeyError: 'x'"),
        (UsageError("own"), "host.f raised UsageError: own"),
        (SystemExit(3), "host.f raised SystemExit: 3"),
        (RecursionError(), "host.f raised RecursionError"),
        (Wordless(), "host.f raised Wordless"),
        (ValueError("\ud800 " + "x" * 999), "host.f raised ValueError: \\ud800 " + "x" * 293 + "…"),
    ],
)
def test_what_raises_suspends_its_rule_by_name(error: BaseException, said: str) -> None:
    reason = suspended(raising(error))
    assert reason.startswith(f"CallFailed: {said} (in p(host.f($x))")
    reason.encode()


def test_a_rule_resumes_once_the_value_has_gone_that_its_function_refuses() -> None:
    program = Program(functions=functions(lambda n: 1 / n))
    program.add("r", "p(host.f($x)) <- v($x).")
    program.tick([Record("v", 0), Record("v", 2)])
    assert program.has_errors and program.derived() == []
    assert program.tick([], [Record("v", 0)]).added == [Record("p", 0.5)]
    assert not program.has_errors


def test_what_a_body_excludes_is_not_calculated_against_it() -> None:
    program = Program(functions=functions(lambda n: 1 / n))
    program.add("r", "p(host.f($x)) <- v($x), $x != 0, not gone($x).")
    program.tick([Record("v", 0), Record("v", 4)])
    assert not program.has_errors and program.derived() == [Record("p", 0.25)]


# -- costs -----------------------------------------------------------------------------------------


def test_each_call_pays_its_cost() -> None:
    program = Program(functions=functions(same, cost=100), bounds=Bounds(work=5_000, work_per_action=0))
    program.add("r", "p(host.f($x)) <- v($x).")
    program.tick([Record("v", n) for n in range(40)])
    assert not program.has_errors
    program.tick([Record("v", n) for n in range(40, 100)])
    (entry,) = program.entries.values()
    assert "more than 5000 units of work in one turn" in entry.error


class Clock:
    """Each call takes ``took`` nanoseconds by it."""

    def __init__(self) -> None:
        self.took = 0
        self._now = self._asked = 0

    def __call__(self) -> int:
        self._now += self.took if self._asked % 2 else 0
        self._asked += 1
        return self._now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_call_that_takes_too_long_suspends_its_rule_until_it_is_resumed(clock: Clock) -> None:
    program = Program(functions=functions(same, longest=0.01, clock=clock))
    program.add("r", "p(host.f($x)) <- v($x).")
    program.add("s", "p2(if($x > 0, host.f($x), 0)) <- v($x).")
    clock.took = 10_000_000
    program.tick([Record("v", 1)])
    assert not program.has_errors, "exactly as long as it may"
    clock.took += 1
    program.tick([Record("v", 2)])
    reasons = [entry.error for entry in program.entries.values()]
    assert all(
        each.startswith("host.f took 0.010 s for one call, longest = 0.01 s in [[functions]] (in p")
        for each in reasons
    )
    assert program.derived() == []
    clock.took = 0
    program.tick([], [Record("v", 2)])
    assert [entry.error for entry in program.entries.values()] == reasons, "not by itself"
    program.resume(["r", "s"])
    assert [entry.error for entry in program.entries.values()] == ["", ""]
    assert len(program.derived()) == 2


def test_a_slow_call_that_raises_is_too_slow(clock: Clock) -> None:
    clock.took = 20_000_000
    with pytest.raises(TooSlow):
        functions(raising(ValueError()), longest=0.01, clock=clock)["host.f"].apply(paid, 1)


def test_a_row_that_goes_may_find_the_function_slow(clock: Clock) -> None:
    program = Program(functions=functions(same, longest=0.01, clock=clock))
    program.add("r", "p(host.f($x)) <- v($x).")
    program.tick([Record("v", 1), Record("v", 2)])
    clock.took = 20_000_000
    assert len(program.tick([], [Record("v", 2)]).removed) == 2
    assert program.has_errors and program.derived() == []


def test_the_time_of_a_call_above_a_millisecond_is_work(clock: Clock) -> None:
    took: list[int] = []
    function = functions(same, cost=2, clock=clock)["host.f"]
    function.apply(took.append, 1)
    clock.took = UNCHARGED + 5_000
    function.apply(took.append, 1)
    assert took == [128, 128, 5 * 64]


def test_a_function_that_is_not_pure_suspends_its_rule() -> None:
    numbers = itertools.count()
    program = Program(functions=functions(lambda _: next(numbers)))
    program.add("r", "p($x, host.f($x)) <- v($x).")
    program.add("s", "s($x) <- p($x, _).")
    program.tick([Record("v", 1), Record("v", 2)])
    program.tick([], [Record("v", 1)])
    errors = {entry.name: entry.error for entry in program.entries.values()}
    assert errors["s"] == "" and "host.f gave another result than before" in errors["r"]
    assert program.derived() == []
    program.tick([Record("v", 3)], [Record("v", 2)])
    assert program.derived() == [] and program.has_errors


@pytest.mark.parametrize(
    "text",
    [
        "p(host.f($x)) <- v($x).",
        "p($x) <- v($x), host.f($x) > 0.",
        "p(if(host.f($x) > 0, $x, 0)) <- v($x).",
        "p(sum(host.f($x))) <- v($x).",
        "p($x, $y) <- v($x), v($y), host.f($x) >= $y.",
        "p($x) <- v($x), not q($x). q($x) <- v($x), host.f($x) > 100.",
    ],
)
@pytest.mark.parametrize("lasts", [False, True])
@pytest.mark.parametrize("how", ["raises", "gives what it may not"])
def test_a_function_that_fails_for_a_row_that_goes_leaves_no_fact(text: str, lasts: bool, how: str) -> None:
    failing = set[Value]()

    def run(value: int) -> object:
        if value not in failing:
            return value
        if how == "raises":
            raise OSError("the file is away")
        return object()

    program, fresh = (Program(functions=functions(run, ("int",), "int")) for _ in range(2))
    for each in (program, fresh):
        each.add("r", text)
        each.add("s", "s($x) <- w($x).")
    program.tick([Record("v", 1), Record("v", 2), Record("w", 1)])
    failing |= {1, 2} if lasts else {1}
    derived = program.tick([], [Record("v", 1)])
    assert derived.removed
    fresh.tick([Record("v", 2), Record("w", 1)])
    assert {*map(key, program.derived())} == {*map(key, fresh.derived())}
    assert program.has_errors == fresh.has_errors == lasts
    failing.clear()
    program.tick([Record("v", 3)], [Record("v", 2)])
    fresh.tick([Record("v", 3)], [Record("v", 2)])
    assert {*map(key, program.derived())} == {*map(key, fresh.derived())} and not program.has_errors


def test_a_function_that_fails_for_a_message_that_goes_suspends_its_rule() -> None:
    calls = itertools.count(1)
    program = Program(functions=functions(lambda n: n / (next(calls) % 2), ("int",), "number"))
    program.add("r", "p($x) <- v($x), host.f($x) > 0.")
    program.tick(messages=[Record("v", 1)])
    assert "division by zero" in next(iter(program.entries.values())).error and program.derived() == []


def test_what_a_negation_keeps_from_a_function_goes_without_being_made_anew() -> None:
    program = Program(functions=functions(lambda n: 1 / n, ("int",), "number"))
    program.add("r", "p(host.f($x)) <- v($x), not zero($x).")
    program.tick([Record("zero", 0), Record("v", 0), Record("v", 1)])
    engines = program.statistics().engines
    program.tick([], [Record("v", 0)])
    assert not program.has_errors and len(program.derived()) == 1
    assert program.statistics().engines == engines


# -- declarations ----------------------------------------------------------------------------------


async def waiting(_: Value) -> None:
    """Is no plain function."""


@pytest.mark.parametrize(
    ("name", "run", "takes", "gives", "said"),
    [
        ("distance", same, ["any"], "any", "two words with a point between them"),
        ("a.b.c", same, ["any"], "any", "two words with a point between them"),
        ("geo.1", same, ["any"], "any", "two words with a point between them"),
        ("geo.", same, ["any"], "any", "two words with a point between them"),
        ("now.f", same, ["any"], "any", "now is a word of rules"),
        ("true.f", same, ["any"], "any", "true is a word of rules"),
        ("geo.f", same, [], "any", "takes nothing"),
        ("geo.f", print, ["any"] * (MAX_ARGUMENTS + 1), "any", "takes 17 arguments, limit 16"),
        ("geo.f", same, ["text"], "any", "no class 'text', which are bool int"),
        ("geo.f", same, ["any"], "sequence", "no class 'sequence'"),
        ("geo.f", same, ["sqe"], "any", "did you mean seq"),
        ("geo.f", same, ["int|"], "any", "no class ''"),
        ("geo.f", 3, ["any"], "any", "3 is no function"),
        ("geo.f", waiting, ["any"], "any", "is no plain function"),
        (
            "geo.f",
            same,
            ["any", "any"],
            "any",
            r"declared with 2 arguments, but .*:same takes \(value",
        ),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(
    name: str, run: Any, takes: list[str], gives: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        host_function(name, run, takes, gives)


def test_a_cost_is_a_number_of_units() -> None:
    for cost in (0, 1_000_001):
        with pytest.raises(UsageError, match=f"costs {cost} units of work"):
            host_function("geo.f", same, ["any"], "any", cost=cost)


def test_functions_in_c_may_be_called() -> None:
    assert functions(sys.intern, ("str",), "str")["host.f"].apply(paid, "a") == "a"


# -- texts -----------------------------------------------------------------------------------------

KNOWN: dict[str, Function] = {
    "geo.distance": host_function("geo.distance", lambda a, b: abs(a - b), ["number", "number"], "number"),
    "geo.label": host_function("geo.label", str, ["any"], "str"),
    "geo.maybe": host_function("geo.maybe", same, ["any"], "str|null"),
}


@pytest.mark.parametrize(
    "text",
    [
        "p(geo.distance($x, 1)) <- v($x).",
        "p(max(geo.distance($x, 1))) <- v($x).",
        "p($x) <- v($x), geo.distance($x, -geo.distance(1, $x)) > (1 * 3).",
        "p($y) <- v($x), $y in [geo.label($x)], not (w($y), geo.label($y) = $y).",
        'p(if(geo.distance($x, 1) < 2, "near", geo.label($x))) <- v($x).',
        "p({geo.label($x): [geo.label($x)]}) <- v($x).",
        "p(len(geo.label($x))) <- v($x).",
        "p($x) <- v($x), max($y) of (v($y), geo.distance($y, $x) < 2) = ($x + 1).",
    ],
)
def test_a_call_stands_wherever_an_expression_does_and_reads_back(text: str) -> None:
    rules = read_rules(text, KNOWN)
    assert [str(each) for each in rules] == [text]
    assert read_rules(str(rules[0]), KNOWN) == rules
    program = Program(functions=KNOWN)
    program.add("r", text)
    facts: list[Value] = [Record("v", n) for n in range(4)]
    assert program.tick(facts).added and not program.has_errors
    program.tick([], facts)
    assert program.size() == 0


def test_a_word_that_stands_for_a_value_and_ends_a_rule_begins_no_call() -> None:
    text = "let big = 2. p($x) <- v($x), $x > big.q($x) <- v($x), $x != true.r($x) <- v($x)."
    assert len(read_rules(text, KNOWN)) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "p(geo.distnce($x, 1)) <- v($x).",
            "no function geo.distnce is registered here: did you mean geo.distance?",
        ),
        ("p(map.distance($x, 1)) <- v($x).", "did you mean geo.distance?"),
        ("p(xyz.q($x)) <- v($x).", "registered are geo.distance, geo.label, geo.maybe"),
        ("p(geo.distance($x)) <- v($x).", "geo.distance takes 2 arguments, not 1"),
        ('p(geo.distance("a", $x)) <- v($x).', 'geo.distance takes number as argument 1, not "a", a text'),
        ("p(geo.distance(geo.label($x), 1)) <- v($x).", "not geo.label($x), a text"),
        ("p($x) <- v($x), geo.label($x) > point(1).", "compares a text with a record"),
        ("p($x) <- v($x), geo.label($x).", "an expression alone says nothing"),
        ("p($x) <- v(geo.label($x)).", "a fact is asked for by a pattern"),
        ("p($x) <- geo.label($x) = $x.", "unsafe rule: $x"),
        ("p(sqrt($x)) <- v($x).", "if geo.distance geo.label geo.maybe (a record is written"),
        ("relation p(n: int). p(geo.label($x)) <- v($x).", "declared is n: int"),
    ],
)
def test_what_is_wrong_with_a_call_is_said(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_rules(text, KNOWN)
    assert said in str(refused.value)


def test_a_class_that_may_be_one_of_several_is_not_known_before() -> None:
    assert read_rules("p(len(geo.maybe($x))) <- v($x).", KNOWN)


def test_constants_are_calculated_when_a_text_is_read() -> None:
    with pytest.raises(UsageError, match=r"geo\.label raised TypeError"):
        read_rules(
            "p(geo.label(1)) <- v(1).",
            {"geo.label": host_function("geo.label", lambda n: n + "a", ["any"], "str")},
        )


def test_a_reader_that_carries_nothing_out_takes_any_name_and_a_program_does_not() -> None:
    text = "p(geo.any($x, 1), geo.any(1)) <- v($x), other.f(1) > 2."
    assert str(read_rules(text)[0]) == text
    program = Program(functions=KNOWN)
    program.add("r", text)
    (entry,) = program.entries.values()
    assert entry.error.startswith("no function geo.any is registered here: did you mean geo.maybe?")
    program = Program()
    program.add("r", text)
    (entry,) = program.entries.values()
    assert "[[functions]] in the configuration of a daemon registers them" in entry.error
    (call, _) = read_rules(text)[0].head.arguments
    with pytest.raises(UnknownFunction):
        call.function.apply(paid, 1, 2)  # type: ignore[union-attr]  # a call
