"""A program to be killed: commits epochs without end, and prints the number of each that was accepted.

What an epoch holds follows from its number, so that whoever opens the log afterwards knows what to expect.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random
from typing import Final

import trio

from dataspace.kernel.changes import Claims, Epoch
from dataspace.kernel.handles import Held
from index.values.values import Record, Value
from relay.log.log import Log
from relay.log.writer import GroupCommit

LARGE: Final = 20_000 if "TORTURE_ROUNDS" in os.environ else 5_000
"""Bytes of a large fact: more than a page of the file, of which 40 are far more than a write."""


def content(number: int) -> tuple[Epoch, list[Value]]:
    """The epoch of a number, and the facts that it adds: up to 40 of some 60 bytes, at times large ones."""
    random = Random(number)
    large = "x" * random.choice([0, 0, 0, LARGE])
    facts: list[Value] = [
        Record("flight", number, at, large, random.random()) for at in range(random.randint(1, 40))
    ]
    claims = Claims("durable:writer", [(number * 100 + at, fact) for at, fact in enumerate(facts)])
    return Epoch(number, number, facts, (), (), [claims], "writer", number), facts


async def main(directory: str) -> None:
    """Goes on from where the log ends, until killed."""
    log = Log.open(Path(directory))
    owners: dict[str, Held] = {"durable:writer": log.recover().owners.get("durable:writer", {})}
    print("from", log.next_epoch, flush=True)
    commits = GroupCommit(log, state=lambda: owners, snapshot_changes=2_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commits.run)
        number = log.next_epoch
        while True:
            epoch, _ = content(number)
            owners["durable:writer"].update(epoch.claims[0].asserted)
            commits.submit(epoch, lambda done: print(done.number, flush=True))
            await commits.wait_room()
            if number % 16 == 0:
                await trio.sleep(0.001)
            number += 1


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
