"""What does a message of 64 bytes cost a client in Python: ours, nats-py, redis-py, each in its usual ways?

A writer in a process of its own sends messages as fast as the server takes them, pipelined by 64, and one
client gets them.  The figure is the CPU time of the client's process for each message.  ``waiting`` is of
ours alone: all epochs lie in the log before the client begins, so that it is the bound.

The clients of the peers are those of ``docs/recipes/beside/requirements.txt``; one that is not installed is
left out.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, Final

from bench._observing import measure_observing
from bench._processes import Served, Side, serving
from bench._reading import measure_reading
from bench._systems.nats import CORE
from bench._systems.redis import REDIS
from bench._systems.system import Missing

PADDING: Final = b"x" * 64
PIPELINED: Final = 64
CHANNELS: Final = 100

SHOWN: Final = {
    "own_waiting_each_us": "dataspace, `each`, epochs that wait",
    "own_waiting_for_us": "dataspace, `async for`, epochs that wait",
    "own_each_us": "dataspace, `each`, as they come",
    "own_for_us": "dataspace, `async for`, as they come",
    "nats_callback_us": "nats-py, callback",
    "nats_for_us": "nats-py, `async for`",
    "redis_listen_us": "redis-py, blocking `listen`",
    "redis_for_us": "redis-py, asyncio `async for`",
}


def measure_clients(messages: int, rounds: int) -> dict[str, float]:
    """Returns microseconds of CPU time of a client for each message, the least of some rounds."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, value in (_ours(messages) | _theirs(messages)).items():
            best[name] = min(best.get(name, math.inf), value)
    return best


def table(figures: dict[str, float]) -> str:
    """Returns the figures as a table of Markdown."""
    rows = [f"| {text} | {figures[name]:.1f} |" for name, text in SHOWN.items() if name in figures]
    return "\n".join(["| a Python client: µs of its CPU for a message of 64 bytes | |", "|---|---|", *rows])


def _ours(messages: int) -> dict[str, float]:
    with serving() as served:
        reading = measure_reading(served, messages)
    observing = measure_observing(messages)
    return {
        "own_waiting_each_us": reading["waiting_each_us"],
        "own_waiting_for_us": reading["waiting_for_us"],
        "own_each_us": observing["client_each_cpu_us"],
        "own_for_us": observing["client_for_cpu_us"],
    }


def _theirs(messages: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    for module, serve, write, ways in (
        ("nats", CORE.serve, _write_nats, {"nats_callback_us": _nats_callback, "nats_for_us": _nats_for}),
        ("redis", REDIS.serve, _write_redis, {"redis_listen_us": _redis_listen, "redis_for_us": _redis_for}),
    ):
        if find_spec(module) is None:
            print(f"{module}: its client is left out, pip install -r docs/recipes/beside/requirements.txt")
            continue
        try:
            for name, way in ways.items():
                figures[name] = _cost(serve, write, way, messages)
        except Missing as error:
            print(f"{module} is left out: {error}")
    return figures


def _cost(
    serve: Callable[[], AbstractContextManager[Served]],
    write: Callable[..., Any],
    read: Callable[..., Any],
    messages: int,
) -> float:
    with serve() as served:
        reader = Side.start(read, served.url, messages)
        assert reader.pipe.recv() == "ready"
        writer = Side.start(write, served.url, messages)
        took: float = reader.pipe.recv()
        writer.stop()
        reader.stop()
    return took / messages * 1e6


# -- sides, each a process: these clients have loops of their own, or none --------------------------


async def _write_nats(port: str, messages: int, _report: Connection) -> None:
    import nats

    async def write() -> None:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        for number in range(messages):
            await client.publish(f"says.{number % CHANNELS}", PADDING)
            if number % PIPELINED == 0:
                await client.flush()
        await client.flush()

    asyncio.run(write())


async def _nats_callback(port: str, messages: int, report: Connection) -> None:
    import nats

    async def read() -> None:
        client, done, seen = await nats.connect(f"nats://127.0.0.1:{port}"), asyncio.Event(), 0

        async def call(_message: object) -> None:
            nonlocal seen
            seen += 1
            if seen == messages:
                done.set()

        await client.subscribe("says.*", cb=call, **_unbounded())
        await client.flush()
        report.send("ready")
        began = time.process_time()
        await done.wait()
        report.send(time.process_time() - began)

    asyncio.run(read())


async def _nats_for(port: str, messages: int, report: Connection) -> None:
    import nats

    async def read() -> None:
        client, seen = await nats.connect(f"nats://127.0.0.1:{port}"), 0
        subscription = await client.subscribe("says.*", **_unbounded())
        await client.flush()
        report.send("ready")
        began = time.process_time()
        async for _ in subscription.messages:
            seen += 1
            if seen == messages:
                break
        report.send(time.process_time() - began)

    asyncio.run(read())


def _unbounded() -> dict[str, int]:
    return {"pending_msgs_limit": 10**7, "pending_bytes_limit": 10**10}  # else a slow reader loses some


async def _write_redis(port: str, messages: int, _report: Connection) -> None:
    import redis

    pipeline = redis.Redis(port=int(port)).pipeline(transaction=False)
    for number in range(messages):
        pipeline.publish(f"says:{number % CHANNELS}", PADDING)
        if number % PIPELINED == PIPELINED - 1:
            pipeline.execute()
    pipeline.execute()


async def _redis_listen(port: str, messages: int, report: Connection) -> None:
    import redis

    listener = redis.Redis(port=int(port)).pubsub(ignore_subscribe_messages=True)
    listener.psubscribe("says:*")
    listener.get_message(timeout=1)
    report.send("ready")
    began = time.process_time()
    for _ in islice(listener.listen(), messages):
        pass
    report.send(time.process_time() - began)


async def _redis_for(port: str, messages: int, report: Connection) -> None:
    import redis.asyncio

    async def read() -> None:
        seen = 0
        listener = redis.asyncio.Redis(port=int(port)).pubsub(ignore_subscribe_messages=True)
        await listener.psubscribe("says:*")
        await listener.get_message(timeout=1)
        report.send("ready")
        began = time.process_time()
        async for _ in listener.listen():
            seen += 1
            if seen == messages:
                break
        report.send(time.process_time() - began)

    asyncio.run(read())
