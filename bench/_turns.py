"""What does a change cost the daemon in turns of fifty?

One writer replaces fifty facts in each turn, each acknowledged once it is on disk, and one observer gets the
two changes of each, all in processes of their own.  The figure is the CPU time of all threads of the daemon,
so that a busy machine shows in it less than in a rate.
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Final

import trio

import dataspace
from bench._processes import Measuring, Side, serving
from index.values.values import Record

TURN: Final = 50
PADDING: Final = "x" * 64


def measure_turns(puts: int) -> dict[str, float]:
    """Returns one round: microseconds of CPU time for each change, two of which make a put."""
    turns = max(1, puts // TURN)
    changes = 2 * TURN * turns
    with serving() as served:
        observer = Side.start(_observe, served.url, TURN + changes)
        assert observer.pipe.recv() == "ready"
        writer = Side.start(_replace, served.url, turns)
        assert writer.pipe.recv() == "ready"
        with Measuring(served.pid) as measuring:
            writer.pipe.send("go")
            assert writer.pipe.recv() == "done"
            assert observer.pipe.recv() == "done"
        writer.stop()
        observer.stop()
    return {"turn50_change_cpu_us": measuring.run(changes).cpu * 1e6}


async def _replace(url: str, turns: int, report: Connection) -> None:
    async with dataspace.connect(url, name="bench writer") as space:
        draft = space.draft()
        claims = [draft.assert_(Record("says", key, PADDING)) for key in range(TURN)]
        await space.submit(draft)
        await space.drain(60)
        report.send("ready")
        await trio.to_thread.run_sync(report.recv)
        for turn in range(turns):
            draft = space.draft()
            claims = [
                draft.replace(claim, Record("says", key, f"{PADDING}{turn}"))
                for key, claim in enumerate(claims)
            ]
            await space.submit(draft)
        await space.drain(60)
        report.send("done")
        await trio.sleep_forever()


async def _observe(url: str, changes: int, report: Connection) -> None:
    async with dataspace.connect(url, name="bench observer") as space:
        async with space.observe("says($i, $what)", quiet=True) as observation:
            await observation.next_epoch()
            report.send("ready")
            seen = 0
            while seen < changes:
                epoch = await observation.next_epoch()
                assert epoch is not None and not epoch.conflated
                seen += len(epoch)
            report.send("done")
            await trio.sleep_forever()
