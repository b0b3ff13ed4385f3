"""A build is described by the parts of it that are machine code."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from dataspace.version import PARTS, compiled_parts


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_named_as_it_was_loaded(part: str) -> None:
    loaded = importlib.import_module(PARTS[part]).__file__
    assert loaded is not None
    assert (part in compiled_parts()) == (Path(loaded).suffix != ".py")


def test_each_part_has_a_module_of_its_own() -> None:
    assert len(set(PARTS.values())) == len(PARTS)
