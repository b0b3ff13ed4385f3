"""A drawing shows what is there, is never long, and says nothing that another program could obey."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from hypothesis import given, strategies as st

from index import errors
from index.errors import UsageError
from index.patterns.patterns import capture, skeleton
from index.patterns.text import parse, parse_pattern
from index.trie.drawings import DEEPEST, Drawing
from index.trie.trie import Index
from index.values.values import Record, Value
from tests.index.strategies import anything, patterns


def observed(*some: str) -> Index:
    index = Index()
    for pattern in some:
        index.add_handler(skeleton(parse_pattern(pattern)), lambda _event, _row: None)
    return index


def example() -> Index:
    index = observed('speak("Alice", $)', "speak($, _)", "x(y(3, 4), $v, z(_, w(), _), _)", "t(7)")
    for fact in ('speak("Alice", "hi")', 'speak("Alice", "bye")', 'speak("Bob", "hi")'):
        index.add(parse(fact))
    return index


DRAWN = """\
root: 3 values
├─ (0, []) speak: 3 values
│  ├─ compare [0]; 1 idle place
│  │  └─ "Alice": 2 values, captures [1] (2 rows) → 1 callback
│  └─ something at [1]
│     └─ (): 3 values, captures [0] (2 rows) → 1 callback
├─ (0, []) x: 0 values
│  └─ (0, [0]) y: 0 values
│     └─ (1, [2]) z: 0 values
│        └─ (0, [1]) w: 0 values
│           └─ compare [0,0] [0,1], something at [2,0], something at [2,2], something at [3]
│              └─ (3, 4): 0 values, captures [1] (0 rows) → 1 callback
└─ (0, []) t: 0 values
   └─ compare [0]
      └─ 7: 0 values, captures nothing (0 rows) → 1 callback
"""


def test_a_drawing_as_text() -> None:
    assert example().draw() == DRAWN


def test_the_drawing_in_our_own_document() -> None:
    index = observed('speak("Alice", $)', "speak($, _)", "x(y(3, 4), $v, z(_, w(), _), _)")
    for fact in ('speak("Alice", "hi")', 'speak("Alice", "bye")'):
        index.add(parse(fact))
    document = files(errors.__package__).joinpath("HOWITWORKS.md").read_text()
    assert "".join([f"    {line}\n" for line in index.draw().splitlines()]) in document


def test_other_forms_have_the_same_boxes() -> None:
    index, lines = example(), DRAWN.count("\n")
    mermaid, dot = index.draw("mermaid"), index.draw("dot")
    assert mermaid.startswith("flowchart LR\n") and dot.startswith("digraph index {\n")
    assert (mermaid.count(" --> "), dot.count(" -> ")) == (lines - 1, lines - 1)
    assert '[label="\\"Alice\\": 2 values, captures [1] (2 rows) → 1 callback", shape=box];' in dot
    assert '["#34;Alice#34;: 2 values, captures #91;1#93; #40;2 rows#41; → 1 callback"]' in mermaid


def test_labels_keys_and_constants_of_any_kind() -> None:
    index = observed('<5>({"k": 1, 7: $})', "[$x:int, $x]", "exact(p(true))", "<q(1)>(_:str)")
    drawn = index.draw()
    for shown in (
        "<5>",
        "{…}",
        "compare [0,'k']",
        "captures [0,7]",
        "int at [0], [1] as [0]",
        "1 parts at []",
    ):
        assert shown in drawn
    assert "True: 0 values" in drawn


def test_there_are_so_many_boxes_and_no_more() -> None:
    index = observed(*[f"p({n}, $)" for n in range(100)], *[f"q{n}($)" for n in range(100)])
    drawn = index.draw(most=3)
    assert "… 97 more" in drawn and "… 98 more" in drawn
    assert len(drawn.splitlines()) < 30
    assert len(index.draw(most=10_000).splitlines()) == 403  # none is missing


def test_a_trie_that_is_deep_or_wide_is_cut() -> None:
    index = Index()
    index.add_handler(skeleton(Record("p", *[Record("q", capture())] * 2_000)), lambda _event, _row: None)
    index.add_handler(skeleton(parse_pattern("a(" * 60 + "$" + ")" * 60)), lambda _event, _row: None)
    for form in Drawing:
        drawn = index.draw(form)
        assert len(drawn) < 100_000
        assert len(drawn.splitlines()) < 6 * DEEPEST


@given(st.lists(patterns, max_size=4), st.lists(anything, max_size=4))
def test_nothing_that_a_stranger_names_gets_out_of_its_box(some: list[Value], facts: list[Value]) -> None:
    index = Index()
    for pattern in some:
        index.add_handler(skeleton(pattern), lambda _event, _row: None)
    for fact in facts:
        index.add(fact)
    assert index.draw().replace("\n", "").isprintable()
    for line in index.draw("dot").splitlines()[2:-1]:
        assert re.fullmatch(r'    b\d+ (-> b\d+|\[label="(?:[^"\\]|\\["\\])*", shape=\w+\]);', line)
    for line in index.draw("mermaid").splitlines()[1:]:
        assert re.fullmatch(r'    b\d+( --> b\d+|(\(|\{\{|\[|>)"[^"\[\]{}()<>`]*"(\)|\}\}|\]))', line)


def test_a_form_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="no form 'svg' of drawings, there are text, mermaid, dot"):
        Index().draw("svg")


@given(st.lists(patterns, max_size=6), st.lists(anything, max_size=6), anything)
def test_the_way_of_a_value_leads_to_what_is_called(
    some: list[Value], facts: list[Value], value: Value
) -> None:
    index, called = Index(), list[object]()
    for pattern in some:
        index.add_handler(skeleton(pattern), lambda _event, row: called.append(row))
    for fact in facts:
        index.add(fact)
    called.clear()
    index.send(value)
    boxes = {row[0]: row for row in index.drawn_rows(value, most=1_000)}
    leaves = [text for _, _, kind, text, passed in boxes.values() if kind == "leaf" and passed]
    assert sum(int(each) for each in re.findall(r"→ (\d+) callback", " ".join(leaves))) == len(called)
    assert all(boxes[above][4] for _, above, _, _, passed in boxes.values() if passed)
    plain = list(index.drawn_rows(most=1_000))
    assert sorted(row[2:4] for row in boxes.values()) == sorted(row[2:4] for row in plain)
    assert not any(row[4] for row in plain)


def test_boxes_on_the_way_are_drawn_before_others() -> None:
    index = observed(
        *[f"label-{at}({at}, $x)" for at in range(30)], *[f"label-29({at}, $x)" for at in range(29)]
    )
    way = [row[3] for row in index.drawn_rows(parse('label-29(28, "x")'), most=1) if row[4]]
    assert way[1:2] == ["(0, []) label-29: 0 values"] and way[-1].startswith("28: 0 values, captures [1]")


def test_rows_are_the_boxes_of_the_text() -> None:
    rows = list(example().drawn_rows(parse('speak("Alice", "hi")')))
    assert [text for *_, text, _ in rows] == [line.lstrip("│├└─ ") for line in DRAWN.splitlines()]
    assert [number for number, *_, passed in rows if passed] == [0, 1, 2, 3, 4, 5]
    assert [above for _, above, *_ in rows[:6]] == [0, 0, 1, 2, 1, 4]
