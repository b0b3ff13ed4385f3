"""Native cancellation (``task.cancel()``, ``wait_for``, ``timeout``) loses and doubles nothing.

asyncio cancels a task also after it was woken and before it has run.  So several readers share one line here,
and are cancelled from outside while it moves.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import hypothesis
import hypothesis.strategies
import pytest

import dataspace
from dataspace import Record, streams as s

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "1"))
MESSAGES = 60 * ROUNDS

Way = Callable[[Callable[[], Awaitable[Any]], random.Random], Awaitable[Any]]


async def cancelled(read: Callable[[], Awaitable[Any]], chance: random.Random) -> Any:
    """Reads in a task that is cancelled from outside, after some turns of the loop."""

    async def reading() -> Any:
        return await read()

    task = asyncio.create_task(reading())
    for _ in range(chance.randrange(6)):
        await asyncio.sleep(0)
    if chance.random() < 0.3:
        await asyncio.sleep(chance.random() / 500)
    task.cancel()
    return await task


async def waited_for(read: Callable[[], Awaitable[Any]], chance: random.Random) -> Any:
    return await asyncio.wait_for(read(), chance.random() / 500)


async def timed(read: Callable[[], Awaitable[Any]], chance: random.Random) -> Any:
    async with asyncio.timeout(chance.random() / 500):
        return await read()


@pytest.mark.parametrize("way", [cancelled, waited_for, timed])
@pytest.mark.parametrize("kind", ["changes", "epochs"])
def test_readers_of_one_observation_share_it(url: str, way: Way, kind: str) -> None:
    """Three readers of one observation, each cancelled again and again."""
    taken, answers = asyncio.run(_shared(url, way, kind))
    assert taken == list(range(MESSAGES))
    assert sorted(answers) == taken


async def _shared(url: str, way: Way, kind: str) -> tuple[list[int], list[int]]:
    """Returns what was read, in order, and what the readers got of it, some of them in another task."""
    taken: list[int] = []
    answers: list[int] = []
    cuts = 0

    async def reader(seed: int, read: Callable[[], Awaitable[int]]) -> None:
        nonlocal cuts
        chance = random.Random(seed)
        while True:
            try:
                answers.append(await way(read, chance))
            except (asyncio.CancelledError, TimeoutError):
                cuts += 1
            if len(answers) == MESSAGES:
                whole.set()
                return

    async with dataspace.connect(url) as space, space.observe("say($n)", snapshot=False) as heard:

        async def read() -> int:
            if kind == "changes":
                taken.append((await heard.read()).n)  # type: ignore[arg-type]  # a number
            else:
                taken.append((await heard.epochs().read()).messages[0][0])  # type: ignore[arg-type]  # as above
            return taken[-1]

        await space.sync()
        whole = asyncio.Event()
        readers = [asyncio.create_task(reader(seed, read)) for seed in range(3)]
        for n in range(MESSAGES):
            space.submit_nowait(_said(space, n))
            if n % 5 == 0:
                await space.sync()
        async with asyncio.timeout(30):
            await whole.wait()
        for task in readers:
            task.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    assert cuts > 3
    return taken, answers


def _said(space: dataspace.RemoteSpace, n: int) -> dataspace.Draft:
    draft = space.draft()
    draft.send(Record("say", n))
    return draft


STEPS: Final = hypothesis.strategies.lists(
    hypothesis.strategies.tuples(
        hypothesis.strategies.sampled_from(["read", "send", "cancel", "turn", "turn"]),
        hypothesis.strategies.integers(0, 5),
    ),
    max_size=40,
)


@hypothesis.given(STEPS, hypothesis.strategies.sampled_from([1, 2, None]))
def test_what_was_sent_is_read_once_and_in_order(steps: list[tuple[str, int]], limit: int | None) -> None:
    """Readers and senders of one source, cancelled between any two turns of the loop."""
    asyncio.run(asyncio.wait_for(_line(steps, limit), 30))


async def _line(steps: list[tuple[str, int]], limit: int | None) -> None:
    source = s.pushable(limit)
    sent: list[int] = []
    taken: list[int] = []
    tasks: list[asyncio.Task[None]] = []

    async def send(value: int) -> None:
        await source.send(value)
        sent.append(value)

    async def read() -> None:
        taken.append(await source.read())

    for number, (step, which) in enumerate(steps):
        if step == "turn":
            await asyncio.sleep(0)
        elif step == "cancel" and which < len(tasks):
            tasks[-1 - which].cancel()
        elif step != "cancel":
            tasks.append(asyncio.create_task(send(number) if step == "send" else read()))
    for _ in range(10):
        await asyncio.sleep(0)
    while source._held or source._senders:
        taken.append(await source.read())
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert outcome is None or isinstance(outcome, asyncio.CancelledError)
    assert sorted(taken) == sorted(sent)
    assert taken == sent


def test_a_place_behind_a_gate_is_passed_on() -> None:
    """A reader that is cancelled after its place was given to it gives it to the next."""

    async def main() -> list[int]:
        values = s.pushable()
        stream = s.pipe(values, s.limit(1))
        readers = [asyncio.create_task(stream.read()) for _ in range(3)]
        await asyncio.sleep(0)
        values.push(1)
        await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
        readers[1].cancel()
        values.push(2)
        async with asyncio.timeout(10):
            return [await readers[0], await readers[2]]

    assert asyncio.run(main()) == [1, 2]


def test_lines_that_a_cancelled_reader_waited_for_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("".join(f"{n}\n" for n in range(20_000)))

    async def main() -> list[str]:
        lines = s.pipe(s.file_lines(path))
        got: list[str] = []
        chance = random.Random(1)
        while True:
            try:
                got.append(await cancelled(lines.read, chance))
            except asyncio.CancelledError:
                continue
            except s.EndOfStream:
                return got
            if len(got) % 100 == 0:
                got.extend(await lines.read_some(4000))

    assert asyncio.run(main()) == [str(n) for n in range(20_000)]


def test_a_connection_that_is_cancelled_from_outside_ends_in_order(url: str) -> None:
    """In any moment: the facts are gone afterwards, and no task is left."""

    async def main() -> None:
        async with dataspace.connect(url) as witness:
            for rounds in range(20):
                task = asyncio.create_task(_present(url))
                for _ in range(rounds * 3):
                    await asyncio.sleep(0)
                if rounds > 10:
                    await asyncio.sleep(rounds / 2000)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            async with asyncio.timeout(10):
                async with witness.observe("present($n)", quiet=True) as seen:
                    state = await seen.next_epoch()
                    assert state is not None
                    left = len(state.added)
                    while left:
                        change = await seen.next_epoch()
                        assert change is not None
                        left += len(change.added) - len(change.removed)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


async def _present(url: str) -> None:
    async with dataspace.connect(url) as space, space.asserting(Record("present", 1)):
        async with space.observe("present($n)") as seen:
            async for _ in seen:
                pass
