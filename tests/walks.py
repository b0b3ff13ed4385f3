"""Walks: through which files of the product does a request go?

A daemon runs in this process, on real sockets and a real log; the client is a process of its own, so its
files are not counted. Each walk is made once so that everything is loaded, and then ``ROUNDS`` times
more. A file counts if one of its functions was entered in each of these rounds, in any thread; so
periodic work of the daemon (heartbeats, checks of memory) is left out. A round lasts a tenth of a second
longer than its client waits: what the client does not wait for, such as the log's write of an interest,
else counts on some machines only.

- *fact*: one client opens an observation and another one asserts a fact, both connected; until the
  observer has the change and the writer the acceptance.
- *replay*: a client connects and reads a pattern's state at an epoch and the changes up to a later one.
- *HTTP observe*: a client connects and requests the changes of a pattern as server-sent events; until
  the first event.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Final

import trio

from server.config.model import Config
from server.daemon.serve import serve

TOP: Final = Path(__file__).parents[1]
PACKAGES: Final = tuple(f"{TOP / name}/" for name in ("index", "dataspace", "relay", "server"))
ROUNDS: Final = 5

CLIENTS: Final = {
    "fact": """
import dataspace, sys, trio

async def main():
    async with dataspace.connect(sys.argv[1]) as writer, dataspace.connect(sys.argv[1]) as reader:
        for n in iter(input, "end"):
            async with reader.observe(f"walked{n}($n)") as seen:
                await seen.next_epoch()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(writer.assert_, dataspace.Record(f"walked{n}", int(n)))
                    await seen.next_epoch()
                print("done", flush=True)

trio.run(main)
""",
    "replay": """
import dataspace, sys, trio

async def main():
    async with dataspace.connect(sys.argv[1]) as writer:
        for n in range(10):
            await writer.assert_(dataspace.Record("past", n), owner="durable:walk")
        last = await writer.sync()
    for n in iter(input, "end"):
        async with dataspace.connect(sys.argv[1]) as reader:
            async with reader.observe("past($n)", as_of=last - 5, upto=last, quiet=True) as seen:
                async for epoch in seen.epochs():
                    pass
            print("done", flush=True)

trio.run(main)
""",
    "HTTP observe": """
import sys, urllib.request

for n in iter(input, "end"):
    with urllib.request.urlopen(sys.argv[1] + "/v1/spaces/main/observe?pattern=walked($n)") as answer:
        while not answer.readline().startswith(b"data"):
            pass
    print("done", flush=True)
""",
}


class Entered:
    """Files in which a function is entered while ``on`` is true, in this thread and all later ones."""

    def __init__(self) -> None:
        self.on = False
        self.files: set[str] = set()
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def stop(self) -> None:
        """Ends the noting, in threads that still run as well."""
        self.on = False
        threading.setprofile(None)
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.on and event == "call":
            self.files.add(frame.f_code.co_filename)


async def walked() -> dict[str, frozenset[str]]:
    """Returns for each walk the files of the product that it goes through."""
    entered = Entered()
    found: dict[str, frozenset[str]] = {}
    try:
        with tempfile.TemporaryDirectory() as data:
            async with trio.open_nursery() as nursery:
                config = Config(("tcp:127.0.0.1:0", "http:127.0.0.1:0"), Path(data))
                tcp, http = await nursery.start(serve, config)
                for name, program in CLIENTS.items():
                    port = (http if name.startswith("HTTP") else tcp).rpartition(":")[2]
                    url = f"{'http' if name.startswith('HTTP') else 'tcp'}://127.0.0.1:{port}"
                    found[name] = await _walk(entered, program, url)
                nursery.cancel_scope.cancel()
    finally:
        entered.stop()
    return found


async def _walk(entered: Entered, program: str, url: str) -> frozenset[str]:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", program, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=TOP
    )
    assert process.stdin is not None and process.stdout is not None  # pipes, as asked for
    rounds = []
    with trio.fail_after(60):
        for number in range(ROUNDS + 1):
            entered.files = set()
            entered.on = number > 0
            await process.stdin.send_all(f"{number}\n".encode())
            said = b""
            while not said.endswith(b"\n"):
                more = await process.stdout.receive_some()
                assert more, "the client ended"
                said += more
            await trio.sleep(0.1)  # what the daemon still does for this round, such as its write of the log
            entered.on = False
            if number:
                rounds.append({each for each in entered.files if each.startswith(PACKAGES)})
        await process.stdin.send_all(b"end\n")
        await process.wait()
    return frozenset(each.removeprefix(f"{TOP}/") for each in set.intersection(*rounds))


if __name__ == "__main__":
    for name, files in trio.run(walked).items():
        print(f"{name}: {len(files)}", *sorted(files), sep="\n  ")
