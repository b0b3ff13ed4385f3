"""How fast do epochs go from a publisher through the daemon to its subscribers?

A real daemon in a process of its own, one publisher and 1 or 10 subscribers in another, over TCP.  Beside it
in the same run the plain way: turns of a space, with as many values each, to as many observers.

    KIND_N_epochs_per_s      epochs complete at all N subscribers; KIND: int, tuple, durable (and int)
    KIND_N_values_per_s      the same, counted in values at one of them
    observed_N_epochs_per_s  the plain way: messages in turns, told to N observers
    KIND_N_ratio             epochs_per_s of KIND ÷ observed
"""

from __future__ import annotations

import time
from typing import Final

import trio

import dataspace
from bench._figures import report
from bench._processes import daemon
from dataspace import Record

VALUES: Final = 10
"""Values in an epoch."""

KINDS: Final = {"int": (0, False), "tuple": (2, False), "durable": (0, True)}
"""Dimensions of times, and whether the topic is durable."""


async def _topic(url: str, name: str, kind: str, subscribers: int, epochs: int) -> float:
    """Seconds until all subscribers have all epochs."""
    dimensions, durable = KINDS[kind]

    async def follow(*, task_status: trio.TaskStatus[None]) -> None:
        async with dataspace.connect(url) as space, space.subscribe(name, slow="wait") as got:
            await space.sync()  # it is there before the first epoch begins
            task_status.started()
            count = 0
            async for epoch in got:
                assert len(epoch.items) == VALUES
                count += 1
                if count == epochs:
                    return

    async with (
        dataspace.connect(url) as space,
        space.publish(name, dimensions=dimensions, durable=durable) as topic,
    ):
        async with trio.open_nursery() as nursery:
            for _ in range(subscribers):
                await nursery.start(follow)
            begun = time.perf_counter()
            for number in range(epochs):
                await topic.send(*range(VALUES))
                await topic.advance((number + 1, number + 1) if dimensions else number + 1)
        seconds = time.perf_counter() - begun
    return seconds


async def _observed(url: str, name: str, observers: int, epochs: int) -> float:
    """The same for messages of a space."""

    async def follow(*, task_status: trio.TaskStatus[None]) -> None:
        async with (
            dataspace.connect(url) as space,
            space.observe(f'value("{name}", $n)', policy="wait") as seen,
        ):
            await seen.next_epoch()
            task_status.started()
            count = 0
            async for epoch in seen.epochs():
                count += len(epoch.messages)
                if count == epochs * VALUES:
                    return

    async with dataspace.connect(url) as space, trio.open_nursery() as nursery:
        for _ in range(observers):
            await nursery.start(follow)
        begun = time.perf_counter()
        for _ in range(epochs):
            draft = space.draft()
            for value in range(VALUES):
                draft.send(Record("value", name, value))
            await space.submit(draft)
    return time.perf_counter() - begun


def measure(url: str, tag: str, epochs: int) -> dict[str, float]:
    """One round."""
    figures: dict[str, float] = {}
    for count in (1, 10):
        plain = epochs / trio.run(_observed, url, f"{tag}-{count}", count, epochs)
        figures[f"observed_{count}_epochs_per_s"] = plain
        for kind in KINDS:
            rate = epochs / trio.run(_topic, url, f"{kind}-{tag}-{count}", kind, count, epochs)
            figures[f"{kind}_{count}_epochs_per_s"] = rate
            figures[f"{kind}_{count}_values_per_s"] = rate * VALUES
            figures[f"{kind}_{count}_ratio"] = rate / plain
    return figures


def _round(number: int, quick: bool) -> dict[str, float]:
    with daemon() as address:
        return measure(address.replace("tcp:", "tcp://", 1), str(number), 100 if quick else 2000)


def main() -> None:
    """Runs the rounds and prints the best of each figure."""
    report(__doc__, _round)


if __name__ == "__main__":
    main()
