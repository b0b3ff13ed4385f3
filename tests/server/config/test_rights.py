"""A pattern is within what may be observed only if all that it matches is, and a caveat only takes away."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given, strategies as st

from dataspace.errors import Refused, UsageError
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND
from index.patterns.patterns import exact, lit, matcher
from index.patterns.text import parse, parse_pattern
from index.values.values import Map, Record, Value
from server.config.covering import apart, covers
from server.config.rights import EVERYTHING, TOPICS, Permit, Rights

ATOMS = st.sampled_from([None, True, 1, 1.0, "a", b"a"])
CLASSES = st.sampled_from(["int", "str", "record", "seq", "map", "bool"])


def _structures(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.one_of(
        st.builds(
            lambda label, fields: Record(label, *fields), st.sampled_from("pq"), st.lists(inner, max_size=2)
        ),
        st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(st.sampled_from("kl"), inner, max_size=2).map(Map),
    )


VALUES = st.recursive(ATOMS, _structures, max_leaves=4)
PATTERNS = st.recursive(
    st.one_of(
        ATOMS,
        st.just(Record("_")),
        st.builds(lambda name: Record("_", name), CLASSES),
        VALUES.map(lit),
    ),
    lambda inner: st.one_of(
        _structures(inner),
        inner.filter(lambda each: isinstance(each, Record | tuple | Map)).map(exact),
        st.builds(lambda of, sub: Record("$", None, of, sub), st.none() | CLASSES, inner),
    ),
    max_leaves=4,
)


@given(PATTERNS, PATTERNS, VALUES)
@example(Record("$", None, None, None), Record("_"), True)
def test_what_is_covered_matches_nothing_else(allowed: Value, asked: Value, value: Value) -> None:
    if covers(allowed, asked) and matcher(asked)(value) is not None:
        assert matcher(allowed)(value) is not None


@given(PATTERNS)
def test_everything_covers_everything(asked: Value) -> None:
    assert covers(Record("_"), asked)


@pytest.mark.parametrize(
    ("allowed", "asked", "within"),
    [
        ("p(_)", "p($x)", True),
        ("p(_)", "p($x, $y)", True),
        ("p(_)", 'p("a")', True),
        ('p("a")', 'p("a", $x)', True),
        ('p("a")', "p($x)", False),
        ("p(_, _)", "p($x)", False),
        ("p(_)", "q($x)", False),
        ("p(_)", "$x", False),
        ("p(_:int)", "p($x:int)", True),
        ("p(_:int)", "p(3)", True),
        ("p(_:int)", "p($x)", False),
        ("p(_:int)", "p($x:str)", False),
        ('p({"k": _})', 'p({"k": $x, "l": $y})', True),
        ('p({"k": _})', 'p({"l": $y})', False),
        ("Observe(p(_))", "Observe(p(_))", True),
        ("Observe(_)", "Observe(p($x))", True),
        ("p(_)", "p($x(q(_)))", True),
        ("p(q(_))", "p($x(q($y)))", True),
        ("p(q(_))", "p($x)", False),
    ],
)
def test_examples(allowed: str, asked: str, within: bool) -> None:
    assert covers(parse_pattern(allowed), parse_pattern(asked)) is within


def _permit(*tables: dict[str, Value]) -> Permit:
    return Permit("somebody", [Rights.read(Map(table)) for table in tables])


def test_a_table_without_rights_allows_everything() -> None:
    assert Rights.read(Map({})) == EVERYTHING
    assert Permit("somebody", [EVERYTHING]).open


def test_what_is_not_listed_is_not_allowed() -> None:
    permit = _permit({"assert": ("p(_)",)})
    permit.check_actions([(ASSERT, 1, parse("p(1)")), (REPLACE, 1, 2, parse("p(2)")), (RETRACT, 2)])
    for action in [(ASSERT, 1, parse("q(1)")), (SEND, parse("p(1)")), (REPLACE, 1, 2, parse("q(2)"))]:
        with pytest.raises(Refused, match="the token 'somebody' does not allow to"):
            permit.check_actions([action])
    for check in [
        lambda: permit.check_observe(parse_pattern("p($x)")),
        lambda: permit.check_durable("anything"),
        lambda: permit.check_topic("publish", "anything"),
        lambda: permit.check_reader("anything"),
        lambda: permit.check_inspect("the index"),
        permit.check_reads,
    ]:
        with pytest.raises(Refused):
            check()
    permit.check_writes()
    permit.check_space("any")


def test_rules_are_facts_that_need_a_right_of_their_own() -> None:
    rule = (ASSERT, 1, parse('rule("r", "p($x) <- q($x).")'))
    with pytest.raises(Refused, match="add rules"):
        _permit({"assert": True}).check_actions([rule])
    _permit({"rules": True}).check_actions([rule])


def test_a_caveat_can_only_take_away() -> None:
    permit = _permit({"assert": ("p(_)",), "durable": ("one",)}, {"assert": True, "observe": True})
    permit.check_actions([(ASSERT, 1, parse("p(1)"))])
    with pytest.raises(Refused):
        permit.check_actions([(ASSERT, 1, parse("q(1)"))])
    with pytest.raises(Refused):
        permit.check_observe(parse_pattern("p($x)"))
    with pytest.raises(Refused):
        permit.check_durable("one")


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"spaces": ("kitchen",)},
        {"observe": ("p(_)",), "readers": ("nightly",), "rules": True},
        {"assert": True, "send": ("m(_)",), "durable": ("d",), "topics": ("t",), "inspect": True},
        {"topics": Map({"publish": ("t",), "end": True})},
        {"deny": Map({"assert": ("p(_)",), "topics": ("t",)}), "stamp": Map({"by": "sensor-7"})},
        {"observe": True, "deny": Map({"observe": ("p(_)",)}), "spaces": ("main",)},
    ],
)
def test_what_is_stated_of_rights_states_the_same_rights(table: dict[str, Value]) -> None:
    rights = Rights.read(Map(table))
    assert Rights.read(rights.stated()) == rights


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"assrt": True}, "no right 'assrt', known are assert, send, observe"),
        ({"assert": ("p($x)",)}, "captures, write _"),
        ({"assert": ("p(",)}, "is no pattern"),
        ({"observe": 3}, "observe must be true, false or an array of patterns as text, got 3"),
        ({"rules": "yes"}, "rules must be true or false"),
        ({"until": "tomorrow"}, "until must be a time"),
        ({"topics": Map({"read": True})}, "topics has no 'read', known are publish"),
        ({"deny": True}, "deny must be a table of rights"),
        ({"deny": Map({"spaces": True})}, "no right 'spaces', known are assert"),
        ({"deny": Map({"assert": ("p($x)",)})}, "captures, write _"),
        ({"stamp": "me"}, "stamp must be a table of up to 8 words"),
        ({"stamp": Map({"by": "a b"})}, "a name or a stamp is 1 to 64 letters"),
    ],
)
def test_a_table_that_is_none_is_refused(table: dict[str, Value], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Rights.read(Map(table))


@given(PATTERNS, PATTERNS, VALUES)
@example(parse_pattern("exact([_])"), parse_pattern("[_, _]"), (1, 2))
def test_patterns_that_are_apart_match_nothing_together(one: Value, other: Value, value: Value) -> None:
    if apart(one, other):
        assert matcher(one)(value) is None or matcher(other)(value) is None


@given(PATTERNS, PATTERNS)
def test_apart_is_the_same_from_both_sides(one: Value, other: Value) -> None:
    assert apart(one, other) is apart(other, one)


@pytest.mark.parametrize(
    ("one", "other", "are"),
    [
        ("p(_)", "q($x)", True),
        ("p(_)", "p($x)", False),
        ("p(_)", "$x", False),
        ("p(_)", "$x:int", True),
        ('p("a")', 'p("b", $x)', True),
        ('p("a")', "p($x)", False),
        ("p(_:int)", 'p("a")', True),
        ("p(_:int)", "p($x:str)", True),
        ("p(_, _)", "exact(p(_))", True),
        ('{"k": 1}', '{"k": 2, "l": _}', True),
        ('{"k": 1}', '{"l": 1}', False),
        ("[1]", "[2, _]", True),
        ("p(_)", "[_]", True),
        ("lit(p(1))", "p(2)", True),
        ("lit(p(1))", "p(_)", False),
        ("p($x(q(_)))", "p(r(_))", True),
    ],
)
def test_examples_of_apart(one: str, other: str, are: bool) -> None:
    assert apart(parse_pattern(one), parse_pattern(other)) is are


def test_what_is_denied_is_taken_away_from_everything() -> None:
    permit = _permit({"deny": Map({"assert": ("secret(_)", "reading(_, _:str)"), "observe": ("secret(_)",)})})
    permit.check_actions([(ASSERT, 1, parse("reading(1, 2)")), (SEND, parse("secret(1)"))])
    permit.check_observe(parse_pattern("reading($x)"))
    for action in [(ASSERT, 1, parse("secret(1)")), (REPLACE, 1, 2, parse('reading(1, "a")'))]:
        with pytest.raises(Refused, match="not-allowed"):
            permit.check_actions([action])
    for pattern in ("secret($x)", "secret(1)", "$x", "$x:record"):
        with pytest.raises(Refused, match="which might show what is denied"):
            permit.check_observe(parse_pattern(pattern))
    with pytest.raises(Refused):
        _permit({"rules": True, "deny": Map({"assert": ("rule(_, _)",)})}).check_actions(
            [(ASSERT, 1, parse('rule("r", "p($x) <- q($x).")'))]
        )


def test_names_and_flags_are_denied_as_well() -> None:
    denied: dict[str, Value] = {
        "durable": ("admin",),
        "topics": ("t",),
        "readers": ("nightly",),
        "groups": ("workers",),
        "rules": True,
        "inspect": True,
    }
    permit = _permit({"deny": Map(denied)})
    checks: list[Callable[[], object]] = [
        lambda: permit.check_durable("admin"),
        *[partial(permit.check_topic, doing, "t") for doing in TOPICS],
        lambda: permit.check_topic_known("t"),
        lambda: permit.check_reader("nightly"),
        lambda: permit.check_group("workers"),
        lambda: permit.check_inspect("the index"),
        permit.check_rules,
    ]
    for check in checks:
        with pytest.raises(Refused):
            check()
    permit.check_durable("mine")
    permit.check_topic("end", "u")
    permit.check_topic_known("u")
    permit.check_reader("weekly")
    permit.check_reads()
    permit.check_writes()
    for nothing in [
        _permit({"deny": Map({"observe": True})}).check_reads,
        _permit({"deny": Map({"assert": True})}).check_writes,
    ]:
        with pytest.raises(Refused):
            nothing()


def test_the_rights_of_a_topic_are_several() -> None:
    listed = _permit({"topics": ("t",)})
    for doing in ("publish", "subscribe", "retain"):
        listed.check_topic(doing, "t")
    for doing, name in [("end", "t"), ("publish", "u")]:
        with pytest.raises(Refused, match=f"does not allow to {doing} topic"):
            listed.check_topic(doing, name)
    several = _permit({"topics": Map({"publish": ("t",), "end": True})})
    several.check_topic("publish", "t")
    several.check_topic("end", "anything")
    several.check_topic_known("anything")
    with pytest.raises(Refused):
        several.check_topic("subscribe", "t")


def test_stamps_of_all_tables_are_together_and_none_is_replaced() -> None:
    permit = _permit({"stamp": Map({"by": "sensor-7"})}, {"stamp": Map({"room": "kitchen"})})
    assert dict(permit.stamp) == {"by": "sensor-7", "room": "kitchen"}
    assert not permit.open
    permit.check_actions([(ASSERT, 1, parse("anything(1)"))])
    with pytest.raises(UsageError, match="stamps by=sensor-8, which is stamped by=sensor-7 already"):
        _permit({"stamp": Map({"by": "sensor-7"})}, {"stamp": Map({"by": "sensor-8"})})


TABLES: list[dict[str, Value]] = [
    {},
    {"observe": True},
    {"observe": ("reading(_)",), "inspect": True, "administer": True, "rules": True},
    {"deny": Map({"administer": True, "observe": ("at(_)",)})},
    {"topics": Map({"publish": True}), "spaces": ("main", "other")},
    {
        "topics": True,
        "durable": True,
        "readers": True,
        "groups": True,
        "assert": True,
        "send": True,
        "spaces": ("main",),
    },
    {"deny": Map({"topics": ("t",), "durable": ("d",), "assert": ("p(_)",), "send": True})},
    {"spaces": False},
]


@given(st.lists(st.sampled_from(TABLES), max_size=3))
def test_a_right_is_whole_if_nothing_of_it_is_refused(tables: list[dict[str, Value]]) -> None:
    permit = _permit(*tables)

    def allows(*checks: Callable[[], None]) -> bool:
        try:
            for check in checks:
                check()
        except Refused:
            return False
        return True

    values = [parse("reading(1)"), parse("p(1)"), parse("other()")]
    found = dict(permit.whole.items())
    assert found.pop("everything") is permit.open
    spaces = found.pop("spaces")
    for name in ("main", "other", "third"):
        within = spaces is True or (isinstance(spaces, tuple) and name in spaces)
        assert within is allows(partial(permit.check_space, name))
    assert found == {
        "assert": allows(*[partial(permit.check_value, "assert", each) for each in values]),
        "send": allows(*[partial(permit.check_value, "send", each) for each in values]),
        "observe": allows(partial(permit.check_observe, Record("_"))),
        "durable": permit.allows_durable("d") and permit.allows_durable("e"),
        "topics": allows(*[partial(permit.check_topic, doing, each) for doing in TOPICS for each in "tu"]),
        "readers": allows(partial(permit.check_reader, "r")),
        "groups": allows(partial(permit.check_group, "g")),
        "rules": allows(permit.check_rules),
        "inspect": permit.inspects,
        "administer": allows(partial(permit.check_administer, "end sessions")),
    }
