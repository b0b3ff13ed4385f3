"""Every example in a docstring of the product does what it says."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import dataspace
import examples
import index
import relay
import server

LAYERS = (index, dataspace, relay, server, examples)


def modules() -> Iterator[str]:
    """The name of every module of the product, without importing any; some twice where it is installed."""
    for layer in LAYERS:
        folder = Path(layer.__path__[0])
        for path in sorted(folder.rglob("*.py")):
            inner = path.relative_to(folder).with_suffix("").parts
            if inner[-1] != "__main__":
                yield ".".join([layer.__name__, *(part for part in inner if part != "__init__")])


@pytest.mark.parametrize("name", list(dict.fromkeys(modules())))
def test_examples(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert not failed
