"""The vectors of the kit are those of the Python side: codec, JSON, text, order and patterns.

``REWRITE=1`` writes the files anew; read what has changed before you commit it.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise
from typing import Any

import pytest

from dataspace.codec import pack, unpack
from dataspace.errors import ProtocolError
from index.errors import UsageError
from index.patterns.patterns import capture_names, matcher
from index.patterns.text import parse, parse_pattern, unparse
from index.values.jsons import from_json
from index.values.values import order_key, same
from tests.conformance.vectors import FILES, FOLDER, plain, written


def kept(name: str) -> Any:
    """Returns what a file of the kit has."""
    return json.loads((FOLDER / name).read_text())


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_those_that_this_side_writes(name: str) -> None:
    made = written(FILES[name]())
    if os.environ.get("REWRITE"):
        (FOLDER / name).write_text(made)
    assert (FOLDER / name).read_text() == made, f"REWRITE=1 writes {name} anew"


def test_a_value_is_the_same_in_each_form() -> None:
    for each in kept("values.json")["values"]:
        value = from_json(each["json"])
        assert same(unpack(bytes.fromhex(each["bytes"])), value), each
        assert same(parse(each["text"]), value), each
        assert pack(value).hex() == each["bytes"]
        assert unparse(value) == each["text"]
        assert plain(value) == each["json"]


def test_the_values_are_in_order_and_no_two_are_the_same() -> None:
    values = [from_json(each["json"]) for each in kept("values.json")["values"]]
    keys = [order_key(each) for each in values]
    assert all(one < other for one, other in pairwise(keys))


def test_other_forms_are_read_and_what_is_none_is_refused() -> None:
    for each in kept("values.json")["also"]:
        read = unpack(bytes.fromhex(each["bytes"])) if "bytes" in each else parse(each["text"])
        assert same(read, from_json(each["json"])), each
    for each in kept("values.json")["refused"]:
        with pytest.raises((ProtocolError, UsageError)):
            unpack(bytes.fromhex(each["bytes"])) if "bytes" in each else parse(each["text"])


def test_json_is_read_with_one_strictness() -> None:
    for each in kept("values.json")["said"]:
        assert unparse(from_json(each["json"])) == each["text"]
    for each in kept("values.json")["unsaid"]:
        with pytest.raises(UsageError):
            from_json(each["json"])


def test_patterns_capture_what_the_file_says() -> None:
    for each in kept("patterns.json")["patterns"]:
        pattern = parse_pattern(each["text"])
        assert same(pattern, unpack(bytes.fromhex(each["bytes"])))
        assert list(capture_names(pattern)) == each["names"]
        for held in each["against"]:
            row = matcher(pattern)(from_json(held["json"]))
            assert (None if row is None else plain(row)) == held["captures"], (each["text"], held)
