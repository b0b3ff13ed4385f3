"""How fast do actors in programs of their own hear of each other, through a daemon?

Box and client: one keeps a value as a fact and takes messages, the other answers each value with a message
that asks for the next; one is outstanding.  Each is a program (``dataspace.running.remote``) with a mirror of
the dataspace, over loopback TCP.  The *floor* is the same conversation of two plain clients, which observe
just what they need and keep no mirror.  All are measured in turn in the same run, the best counts.

    box_rounds_per_s         actors in mirrors: a message, and a fact in place of the one before
    plain_box_rounds_per_s   plain clients
    box_cpu_us               CPU time of a round in the two programs, in microseconds; plain_… as above
    daemon_cpu_us            and in the daemon
    ratio_box                rates, ours ÷ floor; ratio_cpu the same of CPU time in the programs
    box_rounds_per_s_1000    actors, beside a writer elsewhere who changes 1 000 facts a second
"""

from __future__ import annotations

from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Final

import trio

import dataspace
from bench._figures import command_line, show
from bench._processes import Measuring, Run, running, serving
from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.client.session.turns import Claim
from dataspace.running import remote
from index.patterns.patterns import capture
from index.values.values import Record

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

    await remote.run(boot, url=url)


async def client(url: str, rounds: int, pipe: Connection) -> None:
    """The client, as an actor: tells when so many rounds begin, and when they are over."""

    def boot(turn: Turn) -> None:
        @turn.on_asserted(BoxState(capture()))
        def seen(turn: Turn, value: int) -> None:
            if value == 0:
                pipe.send("begun")
            if value < rounds:
                turn.send(SetBox(value + 1))
            else:
                pipe.send("done")
                turn.stop()

    await remote.run(boot, url=url)


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
        pipe.send("begun")
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
        pipe.send("done")


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


def measure(rounds: int, *, actors: bool, beside: int = 0) -> Run:
    """One conversation with processes of its own: its rate, and what daemon, box and client cost."""
    one, other = (box, client) if actors else (plain_box, plain_client)
    with serving() as served, running(one, served.url) as boxed, ExitStack() as stack:
        if beside:
            stack.enter_context(running(noise, served.url, beside))
        asking = stack.enter_context(running(other, served.url, rounds))
        asking.pipe.recv()  # it has begun
        with Measuring(served.pid, boxed.pid, asking.pid) as measuring:
            asking.pipe.recv()
        return measuring.run(rounds)


def main() -> None:
    """Measures all and prints it."""
    args = command_line(__doc__).parse_args()
    conversation, repeats = (100, 1) if args.quick else (2_000, args.rounds)
    best: dict[str, Run] = {}
    for _ in range(repeats):
        for name, actors, beside in ("", True, 0), ("plain_", False, 0), ("noisy", True, 1000):
            run = measure(conversation, actors=actors, beside=beside)
            best[name] = max(best.get(name, run), run, key=lambda each: each.rate)
    figures: dict[str, float] = {}
    for name in "", "plain_":
        daemon, *sides = [1e6 * cost for cost in best[name].costs]
        figures[f"{name}box_rounds_per_s"] = best[name].rate
        figures[f"{name}box_cpu_us"], figures[f"{name}daemon_cpu_us"] = sum(sides), daemon
    figures["box_rounds_per_s_1000"] = best["noisy"].rate
    figures["ratio_box"] = figures["box_rounds_per_s"] / figures["plain_box_rounds_per_s"]
    figures["ratio_cpu"] = figures["box_cpu_us"] / figures["plain_box_cpu_us"]
    show(figures, as_json=args.json)


if __name__ == "__main__":
    main()
