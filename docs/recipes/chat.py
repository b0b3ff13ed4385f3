"""A chat: who is here, and what they say.

python chat.py Ann     # each line is said to all
"""

import sys

import trio

import dataspace
from dataspace import Record


async def show(space: dataspace.RemoteSpace, pattern: str) -> None:
    async with space.observe(pattern) as changes:
        async for change in changes:
            print(change.kind, *change.captures, flush=True)


async def main(me: str) -> None:
    async with dataspace.connect(name=me, heartbeat=1) as space, trio.open_nursery() as nursery:
        for pattern in ("here($who)", "says($who, $text)"):
            nursery.start_soon(show, space, pattern)
        async with space.asserting(Record("here", me)):
            async for line in trio.wrap_file(sys.stdin):
                await space.send(Record("says", me, line.strip()))
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
