"""The blocking client has the verbs of the asynchronous one, and its arguments."""

from __future__ import annotations

import inspect

import pytest

import dataspace
from dataspace import BlockingSpace, RemoteSpace
from dataspace.client.blocking.space import BlockingPublication
from dataspace.client.publications import Publication

VERBS = [
    name
    for name, member in inspect.getmembers(BlockingSpace, inspect.isfunction)
    if not name.startswith("_") and name not in ("close", "call")  # what a thread needs, and a task does not
]


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_is_the_same_with_and_without_async(name: str) -> None:
    blocking, awaited = getattr(BlockingSpace, name), getattr(RemoteSpace, name)
    assert inspect.signature(blocking).parameters == inspect.signature(awaited).parameters
    assert blocking.__doc__ == awaited.__doc__
    assert not inspect.iscoroutinefunction(blocking)


def test_the_usual_verbs_are_there() -> None:
    usual = (
        "assert_ asserting matches observe publish replace request retract send status subscribe sync turn"
    )
    assert set(usual.split()) <= set(VERBS)


@pytest.mark.parametrize("name", ["send", "advance", "flush"])
def test_so_are_those_of_a_publication(name: str) -> None:
    blocking, awaited = getattr(BlockingPublication, name), getattr(Publication, name)
    assert inspect.signature(blocking).parameters == inspect.signature(awaited).parameters


def test_connecting_takes_the_same_arguments() -> None:
    blocking, awaited = dataspace.connect_blocking, dataspace.connect
    assert inspect.signature(blocking).parameters == inspect.signature(awaited).parameters
    assert blocking.__name__ == "connect_blocking" and "without ``async``" in (blocking.__doc__ or "")


def test_an_argument_that_is_none_is_said_at_once() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'gracious'"):
        dataspace.connect_blocking("tcp://127.0.0.1:1", gracious=1.0)  # type: ignore[call-arg]
