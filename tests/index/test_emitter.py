"""Every function that is written at run time shows its lines in a traceback, and what is kept is bounded."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable

import pytest

from index import emitter
from index.emitter import Script, emitted
from index.patterns.patterns import capture, matcher
from index.patterns.skeletons import skeleton
from index.patterns.text import parse_pattern
from index.values.values import COMPILED, Record
from relay.log.selections import flat_selection


def _broken_read() -> object:
    return matcher(Record("r", capture("x")))(_torn())


def _torn() -> Record:
    torn = Record("r", 1)
    object.__delattr__(torn, "fields")
    return torn


def _broken_rule() -> object:
    script = Script()
    script.begin("def divide(n):", loops=False)
    script.line("half = n / zero")
    script.end("half")
    return script.functions("divide")["divide"](1)


def _broken_selection() -> object:
    flat = flat_selection(skeleton(parse_pattern("r($x:int)")))
    assert flat is not None
    return flat.select([None])


@pytest.mark.parametrize(
    ("fails", "name", "line"),
    [
        pytest.param(
            _broken_read,
            "<index text ",
            "p0 = p0.fields",
            id="index",
            marks=pytest.mark.skipif(COMPILED, reason="a record of machine code cannot be torn"),
        ),
        pytest.param(_broken_rule, "<rules text ", "half = n / zero", id="rules"),
        pytest.param(
            _broken_selection, "<log text ", "return [(row[1], ) for row in rows if row[0] == label", id="log"
        ),
    ],
)
def test_a_traceback_shows_the_line(fails: Callable[[], object], name: str, line: str) -> None:
    with pytest.raises((AttributeError, NameError, TypeError)) as raised:
        fails()
    frame = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert frame.filename.startswith(name) and frame.line is not None and line in frame.line


def test_a_thing_has_the_same_name_each_time() -> None:
    script, thing = Script(), object()
    assert script.bind(thing) == script.bind(thing) != script.bind(object())


def test_equal_texts_are_compiled_once_whatever_their_names_stand_for() -> None:
    text = "def two():\n    return 1 + one\n"
    first, second = (emitted(text, {"one": each}, of="test")["two"] for each in (1, 2))
    assert first.__code__ is second.__code__ and (first(), second()) == (2, 3)


def test_the_latest_texts_are_kept_with_their_lines() -> None:
    for n in range(emitter.TEXTS + 10):
        made = emitted(f"def number():\n    return {n}\n", {}, of="test")["number"]
    assert len(emitter._codes) == emitter.TEXTS
    assert linecache.getline(made.__code__.co_filename, 2) == f"    return {emitter.TEXTS + 9}\n"
    assert sum(name.startswith("<test text ") for name in linecache.cache) <= emitter.TEXTS
