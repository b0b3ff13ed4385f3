"""Every example in a docstring of the product does what it says."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

LAYERS = ("index", "dataspace", "relay", "server")


def modules() -> Iterator[str]:
    """The name of every module of the product, without importing any."""
    for layer in LAYERS:
        package = importlib.util.find_spec(layer)
        assert package is not None
        for folder in package.submodule_search_locations or ():
            for path in sorted(Path(folder).rglob("*.py")):
                inner = path.relative_to(folder).with_suffix("").parts
                if inner[-1] != "__main__":
                    yield ".".join([layer, *(part for part in inner if part != "__init__")])


@pytest.mark.parametrize("name", list(modules()))
def test_examples(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert not failed
