"""An election: one worker leads, another one follows when it is gone.

python election.py stand worker-1 2     # leads when it can; 2 s after it was killed another one may
python election.py follow               # prints who leads
"""

import sys
import time

import trio

import dataspace
from dataspace import LockLost


async def stand(me: str, seconds: str) -> None:
    async with dataspace.connect(name=me, heartbeat=1) as space:
        while True:
            try:
                async with space.elect("billing", me, ttl=float(seconds)) as election:
                    print("leading", election.token, time.monotonic(), flush=True)
                    while True:
                        now = time.monotonic()
                        election.check()
                        print("step", election.token, now, flush=True)
                        await trio.sleep(0.05)
            except LockLost:
                print("lost", flush=True)


async def follow() -> None:
    async with dataspace.connect() as space, space.observe('leader("billing", $who)') as leaders:
        async for change in leaders:
            print(change.kind, change.who, change.epoch, flush=True)


if __name__ == "__main__":
    trio.run({"stand": stand, "follow": follow}[sys.argv[1]], *sys.argv[2:])
