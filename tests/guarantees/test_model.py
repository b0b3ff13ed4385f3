"""Each numbered promise of GUARANTEES.md leads to what the model says of it, or a line here says why not."""

from __future__ import annotations

import re
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from tests.sources import code_lines, files

TEXT: Final = Path(__file__).parents[2].joinpath("GUARANTEES.md").read_text("utf-8")
PROMISES: Final = re.findall(r"^\| (\d+) \| \*\*\[?([^]*]+?)(?:\]\((\S+)\))?\.\*\*", TEXT, re.MULTILINE)

MODEL: Final = "tests/model/"
MOST_LINES: Final = 1_600
"""Of code, in the whole model: who wants to know what a dataspace is reads all of it."""

WITHOUT: Final = {
    "Durability": "the model has no disk: a log that is left is compared with the answers",
    "Nothing altered is served": "the model has no bytes",
    "No gaps": "what one observer was shown is compared with the log",
    "One past": "each way of reading the past is compared with the log",
    "Bounded memory": "the model has no memory",
    "Fairness": "the model has no speed",
    "Clients go on": "the model has no connection",
    "Rights": "the model has no tokens: tests/abuse marks what is whose",
    "Spark source": "its rows are compared with those of the log",
    "Spark sink": "its batches are compared with epochs",
    "Spaces": "the model is of one space",
    "Archived once": "an archive is compared with the log",
}
"""Promises of which the model says nothing, and why."""


def test_the_model_can_be_read_in_one_sitting() -> None:
    lines = [code_lines(each) for each in files("tests") if each.name.startswith(MODEL)]
    assert lines and sum(lines) <= MOST_LINES


def test_every_promise_is_found_here() -> None:
    assert [int(number) for number, _, _ in PROMISES] == list(range(1, len(PROMISES) + 1))
    assert len(PROMISES) == len(re.findall(r"^\| \d+ \| \*\*", TEXT, re.MULTILINE))


def test_a_promise_is_in_the_model_or_says_why_not() -> None:
    assert {name for _, name, place in PROMISES if not place} == WITHOUT.keys()


@pytest.mark.parametrize(("name", "place"), [(name, place) for _, name, place in PROMISES if place])
def test_the_place_is_there_and_says_what_it_promises(name: str, place: str) -> None:
    file, _, qualified = place.partition("#")
    module: Any = import_module(file.removesuffix(".py").replace("/", "."))
    assert module.__name__.startswith("tests.model.")
    assert reduce(getattr, qualified.split("."), module).__doc__
