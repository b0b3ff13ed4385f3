"""How fast do actors in programs of their own hear of each other, through a daemon?

Box and client: one keeps a value as a fact and takes messages, the other answers each value with a message
that asks for the next; one is outstanding.  Each is a program (``dataspace.actors.remote``) with a mirror of
the dataspace, over loopback TCP.  The *floor* is the same conversation of two plain clients, which observe
just what they need and keep no mirror.  All are measured in turn in the same run, the best counts.

    box_rounds_per_s         actors in mirrors: a message, and a fact in place of the one before
    plain_box_rounds_per_s   plain clients
    ratio_box                ours ÷ floor
    box_rounds_per_s_1000    actors, beside a writer elsewhere who changes 1 000 facts a second
"""

from __future__ import annotations

import argparse
import json
import time
from multiprocessing.connection import Connection
from typing import Final

import trio

import dataspace
from bench._processes import daemon, running
from dataspace.actors import Turn, capture, record
from dataspace.actors.remote import run
from dataspace.client.turns import Claim
from index.values import Record

BoxState = record("box-state", "value")
SetBox = record("set-box", "value")
NOISE: Final = 20
"""Facts in each turn of the writer elsewhere."""


async def box(url: str, _pipe: Connection) -> None:
    """The box, as an actor; until its process is ended."""

    def boot(turn: Turn) -> None:
        value = turn.field("value", 0)
        turn.assert_(lambda: BoxState(value.value))

        @turn.on_message(SetBox(capture()))
        def put(turn: Turn, new: int) -> None:
            value.value = new

    await run(boot, url=url)


async def client(url: str, rounds: int, pipe: Connection) -> None:
    """The client, as an actor: tells how many seconds so many rounds took."""

    def boot(turn: Turn) -> None:
        began: list[float] = []

        @turn.on_asserted(BoxState(capture()))
        def seen(turn: Turn, value: int) -> None:
            if not began:
                began.append(time.perf_counter())
            if value < rounds:
                turn.send(SetBox(value + 1))
            else:
                pipe.send(time.perf_counter() - began[0])
                turn.stop()

    await run(boot, url=url)


async def plain_box(url: str, _pipe: Connection) -> None:
    """The box, without actors."""
    async with dataspace.connect(url) as space, space.observe("set-box($value)") as asked:
        claim: Claim = await space.assert_(BoxState(0))
        async for change in asked:
            turn = space.draft()
            claim = turn.replace(claim, BoxState(change.value))
            space.submit_nowait(turn.actions)


async def plain_client(url: str, rounds: int, pipe: Connection) -> None:
    """The client, without actors."""
    async with dataspace.connect(url) as space, space.observe("box-state($value)") as states:
        began = time.perf_counter()
        async for change in states:
            value = change.value
            assert isinstance(value, int)  # as the box says it
            if change.kind != "+":
                continue
            if value >= rounds:
                break
            turn = space.draft()
            turn.send(SetBox(value + 1))
            space.submit_nowait(turn.actions)
        pipe.send(time.perf_counter() - began)


async def noise(url: str, per_second: int, _pipe: Connection) -> None:
    """Changes facts that concern nobody, at a steady rate."""
    async with dataspace.connect(url) as space:
        claims = [await space.assert_(Record("noise", at, 0)) for at in range(NOISE)]
        count = 0
        while True:
            count += 1
            turn = space.draft()
            claims = [turn.replace(claim, Record("noise", at, count)) for at, claim in enumerate(claims)]
            await space.submit_nowait(turn.actions).wait()
            await trio.sleep(NOISE / per_second)


def measure(rounds: int, *, actors: bool, beside: int = 0) -> float:
    """Rounds per second of one conversation, with a daemon and processes of its own."""
    sides = (box, client) if actors else (plain_box, plain_client)
    with daemon() as url, running(sides[0], url):
        if beside:
            with running(noise, url, beside), running(sides[1], url, rounds) as asking:
                return rounds / float(asking.pipe.recv())
        with running(sides[1], url, rounds) as asking:
            return rounds / float(asking.pipe.recv())


def main() -> None:
    """Measures all and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="only see that it works")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many counts")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    args = parser.parse_args()
    conversation, repeats = (100, 1) if args.quick else (2_000, args.rounds)
    figures: dict[str, float] = {}
    for _ in range(repeats):
        for name, actors, beside in (
            ("box_rounds_per_s", True, 0),
            ("plain_box_rounds_per_s", False, 0),
            ("box_rounds_per_s_1000", True, 1000),
        ):
            rate = measure(conversation, actors=actors, beside=beside)
            figures[name] = max(figures.get(name, 0.0), rate)
    figures["ratio_box"] = figures["box_rounds_per_s"] / figures["plain_box_rounds_per_s"]
    for name, figure in figures.items():
        print(f"{name:28} {figure:14,.2f}")
    if args.json:
        print(json.dumps({name: round(figure, 3) for name, figure in figures.items()}))


if __name__ == "__main__":
    main()
