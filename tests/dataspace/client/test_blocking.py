"""The blocking client has the verbs of the asynchronous one, and its arguments."""

from __future__ import annotations

import inspect

import pytest

import dataspace
from dataspace import BlockingSpace, RemoteSpace
from dataspace.client.blocking.jobs import BlockingJobs
from dataspace.client.blocking.live import BlockingLiveMap
from dataspace.client.blocking.publications import BlockingCapability, BlockingPublication
from dataspace.client.blocking.space import (
    BlockingHold,
    BlockingLock,
    BlockingObservation,
)
from dataspace.client.holds import Hold
from dataspace.client.jobs import Jobs
from dataspace.client.live import LiveMap
from dataspace.client.locks import Lock
from dataspace.client.observations import Observation
from dataspace.client.publications import Capability, Publication

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


PAIRS: dict[type, tuple[type, str]] = {
    BlockingPublication: (Publication, "fail join leave may_be_away reconnected returned"),
    BlockingCapability: (Capability, ""),
    BlockingHold: (Hold, "keep"),
    BlockingLock: (Lock, "acquire lost on_lost release"),  # of the block
    BlockingJobs: (
        Jobs,
        "aclose arrive cause deliveries extend fail finish key_order know open reach reopen run seen settle",
    ),
    BlockingLiveMap: (LiveMap, "begin end"),  # of the block
    BlockingObservation: (
        Observation,
        "abort abort_nowait aclose bind enter kind needs_tasks open peek promistream_version read read_some"
        " release",
    ),
}
"""Objects of both clients, and what a blocking program does not need: the wire's side, streams, and tasks."""


@pytest.mark.parametrize("kind", PAIRS, ids=[each.__name__ for each in PAIRS])
def test_an_object_has_the_same_members_with_and_without_async(kind: type) -> None:
    awaited, others = PAIRS[kind]
    members = [name for name in dir(awaited) if not name.startswith("_")]
    assert [name for name in members if not hasattr(kind, name)] == sorted(others.split())
    for name in members:
        blocking, verb = getattr(kind, name, None), getattr(awaited, name)
        if inspect.iscoroutinefunction(verb) and callable(blocking) and name not in ("next_epoch", "each"):
            assert list(inspect.signature(blocking).parameters) == list(inspect.signature(verb).parameters)
            assert blocking.__doc__ == verb.__doc__ and not inspect.iscoroutinefunction(blocking)


def test_connecting_takes_the_same_arguments() -> None:
    blocking, awaited = dataspace.connect_blocking, dataspace.connect
    assert inspect.signature(blocking).parameters == inspect.signature(awaited).parameters
    assert blocking.__name__ == "connect_blocking" and "without ``async``" in (blocking.__doc__ or "")


def test_an_argument_that_is_none_is_said_at_once() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'gracious'"):
        dataspace.connect_blocking("tcp://127.0.0.1:1", gracious=1.0)  # type: ignore[call-arg]
