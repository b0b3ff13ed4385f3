"""The work queue with Redis: a stream, a group of consumers, and what others have not acknowledged in time.

A result is made once by a script, since a worker that was stopped may be done twice.

    python work_queue_redis.py put 1 6 7
    python work_queue_redis.py work one 2
"""

import sys
import time

import redis

DONE = """
local held = redis.call('XPENDING', 'tasks', 'workers', ARGV[1], ARGV[1], 1)
if #held == 0 or held[1][2] ~= ARGV[2] then return 0 end
redis.call('HSETNX', 'done', ARGV[3], ARGV[4])
redis.call('XACK', 'tasks', 'workers', ARGV[1])
return 1
"""


def put(number, a, b):
    redis.Redis().xadd("tasks", {"id": number, "a": a, "b": b})


def next_task(server, me, millis):
    _, claimed, *_ = server.xautoclaim("tasks", "workers", me, min_idle_time=millis, count=1)
    if claimed:
        return claimed[0]
    read = server.xreadgroup("workers", me, {"tasks": ">"}, count=1, block=millis // 2)
    return read[0][1][0] if read else None


def work(me, seconds):
    server = redis.Redis(decode_responses=True)
    done = server.register_script(DONE)
    try:
        server.xgroup_create("tasks", "workers", id="0", mkstream=True)
    except redis.ResponseError:
        pass  # another worker has made it
    while True:
        try:
            found = next_task(server, me, int(1000 * float(seconds)))
            if found is not None:
                at, task = found
                print("doing", task["id"], flush=True)
                time.sleep(0.2)  # the work; one that takes longer than the time has to call XCLAIM meanwhile
                is_mine = done(args=[at, me, task["id"], int(task["a"]) * int(task["b"])])
                print("done" if is_mine else "not mine", task["id"], flush=True)
        except redis.ConnectionError:
            time.sleep(1)


if __name__ == "__main__":
    {"put": put, "work": work}[sys.argv[1]](*sys.argv[2:])
