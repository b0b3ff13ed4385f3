"""A block that is not entered says what to write: each verb, and each object that a verb returns.

Nothing waits for ever, and nothing has happened.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
import trio

import dataspace
from dataspace import BlockingSpace, Record, RemoteSpace, UsageError
from tests.dataspace.client.test_typed import Reading

PATTERN: Final = "reading($device, $value)"

BLOCKS: Final[dict[str, Callable[[Any], Any]]] = {
    "asserting": lambda space: space.asserting(Record("present", "Ann")),
    "turn": lambda space: space.turn(),
    "consume": lambda space: space.consume(PATTERN, group="workers"),
    "publish": lambda space: space.publish("news"),
    "subscribe": lambda space: space.subscribe("news", timeout=9),
    "lock": lambda space: space.lock("billing"),
    "elect": lambda space: space.elect("billing", "me"),
    "live": lambda space: space.live("present($who)", by="who"),
}
"""Verbs whose result must be entered."""

ITERATED: Final[dict[str, Callable[[Any], Any]]] = {
    "observe": lambda space: space.observe(PATTERN),
    "observe, rows": lambda space: space.observe(PATTERN, row=Reading),
    "watch": lambda space: space.watch(PATTERN),
    "observe, epochs": lambda space: space.observe(PATTERN).epochs(),
    "observe, rows, epochs": lambda space: space.observe(PATTERN, row=Reading).epochs(),
    "completed": lambda space: space.completed("news"),
}
"""Verbs whose result is iterated over without a block."""

PLAIN: Final = {"draft", "cut", "submit_nowait"}
"""Verbs that wait for nothing and return what is used as it is."""

USES: Final[dict[str, Callable[[Any], Any]]] = {
    "consume": lambda jobs: [jobs.next_job, lambda: jobs.run(print), lambda: jobs.key_order(), jobs.done],
    "subscribe": lambda epochs: [epochs.next_epoch, epochs.next_event, lambda: anext(epochs.events())],
    "publish": lambda publication: [lambda: publication.send(1), lambda: publication.advance(2)],
    "turn": lambda turn: [lambda: turn.assert_(1), lambda: turn.epoch],
    "asserting": lambda claim: [lambda: claim.handle],
    "lock": lambda lock: [lambda: lock.check(), lambda: lock.token, lambda: lock.held],
    "elect": lambda lock: [lambda: lock.valid],
    "live": lambda rows: [lambda: rows.changed(), lambda: rows.epoch],
}
"""What programs do with what the block would give."""


def test_each_verb_is_in_one_of_the_tables() -> None:
    verbs = {
        name: verb
        for name, verb in inspect.getmembers(RemoteSpace, inspect.isfunction)
        if not name.startswith("_") and not inspect.iscoroutinefunction(verb)
    }
    listed = set(BLOCKS) | {name.split(",")[0] for name in ITERATED} | PLAIN
    assert set(verbs) == listed  # Python says of all others that they were not awaited


async def says(name: str, use: Callable[[], Any]) -> None:
    """Uses an object, which is refused with what to write."""
    with trio.fail_after(60), pytest.raises(UsageError) as caught:
        result = use()
        if inspect.isawaitable(result):
            await result
    assert f"{name.split(',')[0].replace('watch', 'observe')}(…" in str(caught.value), caught.value


async def awaited(thing: Awaitable[object]) -> None:
    await thing


async def iterated(thing: Any) -> None:
    async for _ in thing:
        pass


def entered(thing: Any) -> None:
    with thing:
        pass


@pytest.mark.parametrize("name", [*BLOCKS, *ITERATED])
async def test_an_object_that_is_used_otherwise_says_how_to_use_it(url: str, name: str) -> None:
    async with dataspace.connect(url) as space:
        make = (BLOCKS | ITERATED)[name]
        await says(name, lambda: awaited(make(space)))
        await says(name, lambda: entered(make(space)))
        await says(name, lambda: list(make(space)))
        if name in BLOCKS:
            await says(name, lambda: iterated(make(space)))
        for use in USES[name](make(space)) if name in USES else []:
            await says(name, use)
        if name in ("consume", "subscribe"):
            with pytest.raises(UsageError):
                iter_at = make(space)
                iter_at.__aiter__()
        assert await space.sync() == 0  # nothing has happened


@pytest.mark.parametrize("name", ["consume", "subscribe"])
async def test_what_has_ended_is_not_taken_for_what_was_never_entered(url: str, name: str) -> None:
    async with dataspace.connect(url) as space, space.publish("news"):
        async with BLOCKS[name](space) as made:
            pass
        with trio.fail_after(60):
            await iterated(made)


async def test_a_connection_that_is_not_entered_says_so(url: str) -> None:
    await says("connect", lambda: awaited(dataspace.connect(url)))  # type: ignore[arg-type]  # as it is meant
    await says("connect", lambda: entered(dataspace.connect(url)))
    await says("connect", lambda: dataspace.connect(url).matches(PATTERN))  # type: ignore[attr-defined]  # as above
    assert not hasattr(dataspace.connect(url), "matches")


async def test_a_call_that_was_not_awaited_is_no_value_and_no_claim(url: str) -> None:
    async with dataspace.connect(url) as space:
        rows = space.matches(PATTERN)
        with pytest.raises(UsageError, match="write `await`"):
            await space.assert_(Record("seen", rows))
        rows.close()
        claim = space.assert_(Record("present", "Ann"))
        with pytest.raises(UsageError, match="write `await`"):
            await space.retract(claim)  # type: ignore[arg-type]  # as it is meant
        claim.close()


def blocking(url: str, check: Callable[[BlockingSpace], None]) -> None:
    with dataspace.connect_blocking(url) as space:
        check(space)


@pytest.mark.parametrize("name", [*BLOCKS, "observe", "observe, rows"])
async def test_a_blocking_object_that_is_used_otherwise_says_how_to_use_it(url: str, name: str) -> None:
    made: list[Any] = []
    make = (BLOCKS | ITERATED)[name]

    def check(space: BlockingSpace) -> None:
        assert space.sync() == 0
        made.extend([make(space), space])
        if name in BLOCKS:
            with pytest.raises(UsageError, match=rf"with space\.{name}\(…\)"):
                list(make(space))
            for use in USES[name](make(space)) if name in ("publish", "turn", "asserting", "lock") else []:
                with pytest.raises(UsageError, match=rf"with space\.{name}\(…\)"):
                    use()
            assert space.sync() == 0
        else:
            made[0].close()

    await trio.to_thread.run_sync(blocking, url, check)
    await says(name, lambda: awaited(made[0]))
    await says(name, lambda: iterated(made[0]))
    await says("connect_blocking", lambda: made[1].__aenter__())
