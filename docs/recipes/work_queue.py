"""A work queue: each task has one result, also if workers are killed or stopped in the middle.

python work_queue.py put 1 6 7     # a task: what is 6 × 7?
python work_queue.py work one 2    # a worker, which needs 2 s for each
"""

import sys

import trio

import dataspace
from dataspace import DeliveryLost, Record


async def put(*numbers: str) -> None:
    async with dataspace.connect(owner="queue") as space:
        await space.assert_(Record("task", *map(int, numbers)))


async def work(me: str, seconds: str) -> None:
    async with dataspace.connect(name=me, heartbeat=1) as space:
        async with space.consume("task($id, $a, $b)", group="workers", start="held", ack_within=5) as jobs:
            async for job in jobs:
                print("doing", job["id"], flush=True)
                await trio.sleep(float(seconds))  # the work, in which the process may be killed or stopped
                try:
                    async with space.turn(done=[job]) as turn:
                        turn.assert_(Record("done", job["id"], job["a"] * job["b"], me), owner="results")
                except DeliveryLost:  # another worker has it
                    print("not mine", job["id"], flush=True)


if __name__ == "__main__":
    trio.run({"put": put, "work": work}[sys.argv[1]], *sys.argv[2:])
