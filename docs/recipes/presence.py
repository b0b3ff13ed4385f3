"""Presence: everybody sees who is there now; who is killed, cut off or stopped is seen to leave.

python presence.py Alice 1     # prints who comes and goes; is gone after 2 s of silence
"""

import sys

import trio

import dataspace
from dataspace import Record


async def main(me: str, heartbeat: str) -> None:
    async with dataspace.connect(name=me, heartbeat=float(heartbeat)) as space:
        async with space.asserting(Record("present", me)), space.observe("present($who)") as changes:
            async for change in changes:
                print(change.kind, change.who, flush=True)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
