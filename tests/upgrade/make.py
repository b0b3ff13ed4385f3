"""Makes the data directory that is kept of a version.

    python -m tests.upgrade.make NAME

starts the daemon of this checkout, fills it through the commands of the shell and kills it, so that the
write-ahead logs are kept as well.  Run it for each version that is released, and for each change of a format;
never make a kept one anew.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import trio

import dataspace
from dataspace.bulk import BulkClient, topic_acknowledge, topic_frontier
from tests.server.processes import DaemonProcess

KEPT: Final = Path(__file__).parent / "kept"

THINGS: Final = (
    'thing(1, 1.0, -7, 18446744073709551617, null, true)',
    r'thing(b"\x00\xff", "é", [1, [2]], {"k": null, 1: [1.5]})',
    "thing(@2026-01-01T00:00:00.000250Z, nested(deeper(1)), {}, [])",
    '"no record"',
)  # fmt: skip
REACH: Final = "reach($x, $y) <- road($x, $y). reach($x, $z) <- reach($x, $y), road($y, $z)."
COUNTS: Final = 12
HELD: Final = dataspace.Record("held", "by a session")
NUMBER: Final = 40
"""The epoch that a named reader has acknowledged."""


def fill(url: str) -> None:
    """Asserts, retracts, sends, derives and publishes what ``test_kept.py`` looks for."""

    def run(*words: str, said: str = "") -> None:
        command = [sys.executable, "-m", "dataspace", *words, "--url", url]
        subprocess.run(command, check=True, input=said, text=True, stdout=subprocess.DEVNULL)

    run(
        "assert",
        "--durable",
        "roads",
        'road("a", "b")',
        'road("b", "c")',
        'road("c", "d")',
        'town("a")',
        'town("d")',
    )
    run("assert", "--durable", "things", *THINGS)
    run("rule", "add", "reach", REACH, "--durable", "roads")
    run("retract", "--durable", "roads", 'road("c", "d")')
    run("send", 'said("hello")')
    items = '6 ["harbour", 14.2]\n7 ["harbour", 15.0]\n'
    run("topic", "publish", "readings", "--durable", "--times", said=items)
    for number in range(1, COUNTS + 1):
        run("assert", "--durable", "counts", f"count({number})")


async def fill_topics(url: str) -> None:
    """Leaves topics in every state that a file can have.

    ``trimmed`` lacks its oldest epochs, was read to number 40 by a named reader, and has an epoch of a
    producer that failed; ``open`` has two partitions, a producer that may be away, and an epoch that it has
    begun; ``grid`` has two dimensions; ``ended`` is gone.
    """
    async with dataspace.connect(url) as space:
        async with space.publish("trimmed", durable=True, retain=20_000) as topic:
            for time in range(60):
                await topic.finish(time, "x" * 1000, then=time + 1)
            await topic.flush()
        with contextlib.suppress(_Fault):
            async with space.publish("trimmed", durable=True, retain=20_000, name="unlucky") as topic:
                await topic.send("half")
                await topic.flush()
                raise _Fault
        async with space.publish("grid", durable=True, dimensions=2) as grid:
            for at in ((0, 0), (0, 1), (1, 0), (2, 2)):
                await grid.send(list(at), at=at)
            await grid.advance((1, 1))
            await grid.flush()
        async with space.publish("ended", durable=True) as ended:
            await ended.finish(1, then=1)
        await space.end_topic("ended")
    with BulkClient(url) as link:
        known = topic_frontier(link, "trimmed")
        topic_acknowledge(link, "report", "trimmed", id=known.id, number=NUMBER)


async def leave_open(url: str, daemon: DaemonProcess) -> None:
    """Kills the daemon while an epoch of the topic ``open`` has begun, and a session holds a fact."""
    with contextlib.suppress(BaseExceptionGroup, dataspace.Broken, dataspace.Closed):
        async with dataspace.connect(url, grace=600) as space, contextlib.AsyncExitStack() as held:
            await space.assert_(HELD)
            topics = [
                await held.enter_async_context(
                    space.publish(
                        "open", partition=each, partitions=2, durable=True, name=f"p{each}", away=300
                    )
                )
                for each in (0, 1)
            ]
            for time in range(300):  # more steps than lie between two places where a reader begins
                for each, topic in enumerate(topics):
                    await topic.finish([each, time], then=time + 1)
            await topics[0].send("begun")
            for topic in topics:
                await topic.flush()
            daemon.kill()
            raise dataspace.Closed("the daemon was killed")


class _Fault(Exception):
    """Ends a publication in the midst of an epoch."""


def keep(name: str) -> Path:
    """Makes ``kept/NAME.tar.xz``; raises ``FileExistsError`` if it is there."""
    place = KEPT / f"{name}.tar.xz"
    with tempfile.TemporaryDirectory() as folder, tarfile.open(place, "x:xz") as archive:
        data = Path(folder) / "data"
        daemon = DaemonProcess(data)
        daemon.start()
        try:
            fill(daemon.url)
            trio.run(fill_topics, daemon.url)
            trio.run(leave_open, daemon.url, daemon)
        finally:
            daemon.kill()
        for file in sorted(data.iterdir()):
            if file.is_file() and file.name != "lock" and not file.name.endswith("-shm"):
                archive.add(file, file.name)
    return place


if __name__ == "__main__":
    print(keep(sys.argv[1]))
