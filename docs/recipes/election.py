"""An election: one worker leads, another one follows when it is gone.

python election.py worker-1 2                # leads when it can; 2 s after it was killed another one may
dataspace watch 'leader("billing", $who)'    # who leads
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
                    while now := time.monotonic():
                        election.check()
                        print("step", election.token, now, flush=True)
                        await trio.sleep(0.05)
            except LockLost:
                print("lost", flush=True)


if __name__ == "__main__":
    trio.run(stand, *sys.argv[1:])
