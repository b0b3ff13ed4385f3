"""A work queue: each task has one result, also if workers are killed or stopped in the middle.

python work_queue.py put 1 6 7       # a task: what is 6 × 7?
python work_queue.py work one 2      # a worker; its task is open again 2 s after it was killed
"""

import sys

import trio

import dataspace
from dataspace import Record, Refused, exactly

OPEN = "open($id, $a, $b) <- task($id, $a, $b), not doing($id, _), not done($id, _, _)."


async def put(*numbers: str) -> None:
    async with dataspace.connect(owner="queue", client="~put") as space, space.turn() as turn:
        turn.assert_(Record("rule", "open tasks", OPEN))
        turn.assert_(Record("task", *map(int, numbers)))


async def work(me: str, seconds: str) -> None:
    async with (
        dataspace.connect(name=me, lease=float(seconds), reassert=False) as mine,
        dataspace.connect(owner="results", client=f"~{me}") as results,
        mine.observe("open($id, $a, $b)", policy="wait") as tasks,
    ):
        async for task in tasks:
            try:
                async with mine.turn(expect=[exactly(f"open({task.id}, _, _)", [()])]) as turn:
                    claim = turn.assert_(Record("doing", task.id, me))
                print("doing", task.id, flush=True)
                await trio.sleep(0.2)  # the work, in which the process may be killed or stopped
                async with results.turn(expect=[exactly(f'doing({task.id}, "{me}")', [()])]) as turn:
                    turn.assert_(Record("done", task.id, task.a * task.b, me))
                await mine.retract(claim)
                print("done", task.id, flush=True)
            except Refused:  # another worker has it, or it was lost meanwhile
                print("not mine", task.id, flush=True)


if __name__ == "__main__":
    trio.run({"put": put, "work": work}[sys.argv[1]], *sys.argv[2:])
