"""What does an event cost over WebSocket, as msgpack and as JSON, beside TCP?

A daemon in a process of its own, a writer with the real client over TCP, and clients that read what comes
and decode nothing: over TCP, and over both subprotocols of WebSocket.  An event is one row of two captures,
a number and 64 characters.  Doors are measured in turn, and the best of the rounds counts.  ``DOOR`` is
``tcp``, ``msgpack`` or ``json``, or ``events``, server-sent events.

    DOOR_events_per_s        one client, turns of 50 changes, pipelined
    DOOR_turn50_cpu_us       CPU time of the daemon for each of those events, the turn on disk included
    DOOR_single_cpu_us       the same in turns of one change
    DOOR_fanout_cpu_us       CPU time of the daemon for each event of each of 100 clients, turns of one change
    KIND_msgpack_to_tcp      what such an event costs over WebSocket as msgpack ÷ what it costs over TCP
    KIND_json_to_msgpack     as JSON ÷ as msgpack, both over WebSocket
    KIND_events_to_json      as server-sent events ÷ as JSON over WebSocket
    alone_cpu_us             CPU time of the daemon for an event to one client over TCP, turns of one change
    beside_cpu_us            the same while 100 browsers (50 WebSockets with JSON, 50 event streams) watch
                             another pattern, in which nothing happens
    beside_to_alone          the one ÷ the other: what the daemon's other clients lose
    alone_p50_ms, _p99_ms    one change from a writer's call to an observer's hands, both over TCP, while 100
                             epochs in a second change other facts
    watched_p50_ms, _p99_ms  the same while 100 pages of the inspector watch those facts (see _watching.py)
    unpaced_p50_ms, _p99_ms  the same with pages that want each change, without a pace
    watched_to_alone_p50     what the daemon's other clients lose, and p99; so also ``unpaced_to_alone_…``
    alone_cpu_share          of a CPU that the daemon needs, and with pages ``watched_…`` and ``unpaced_…``
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import socket
from itertools import product
from multiprocessing.connection import Connection
from typing import Any, Final

import trio

import dataspace
from bench._figures import report
from bench._processes import Measuring, Run, Served, Side, serving
from bench._watching import measure_beside
from dataspace.codec import pack
from dataspace.wire import packets as p
from dataspace.wire.frames import frame
from index.patterns.patterns import capture
from index.values.jsons import to_json
from index.values.values import Map, Record, Value

DOORS: Final = ("tcp", "msgpack", "json", "events")
KINDS: Final = ("turn50", "single", "fanout")
CLIENTS: Final = 100
PLENTY: Final = 1 << 40
LAST: Final = b"the last of all"
PADDING: Final = "x" * 64


def measure(_number: int, quick: bool) -> dict[str, float]:
    """Returns one round of all figures."""
    scale = 0.02 if quick else 1.0
    figures: dict[str, float] = {}
    for door in DOORS:
        with serving("http:127.0.0.1:0") as served:
            bulk = run(served, door, 1, int(4000 * scale), 50)
            single = run(served, door, 1, int(10_000 * scale), 1)
            fanout = run(served, door, CLIENTS, int(2000 * scale), 1)
        figures[f"{door}_events_per_s"] = bulk.rate
        figures[f"{door}_turn50_cpu_us"] = bulk.cpu * 1e6
        figures[f"{door}_single_cpu_us"] = single.cpu * 1e6
        figures[f"{door}_fanout_cpu_us"] = fanout.cpu * 1e6 / CLIENTS
    with serving("http:127.0.0.1:0") as served:
        turns = int(10_000 * scale)
        figures["alone_cpu_us"] = run(served, "tcp", 1, turns, 1).cpu * 1e6
        port = int(served.others[0].rpartition(":")[2])
        browsers = [_connected(DOORS[2 + n % 2], port, CLIENTS + n, "elsewhere") for n in range(CLIENTS)]
        figures["beside_cpu_us"] = run(served, "tcp", 1, turns, 1).cpu * 1e6
        for each in browsers:
            each.close()
    with serving("http:127.0.0.1:0") as served:
        figures |= measure_beside(served, _greeted, _said, quick=quick)
    return figures


def ratios(figures: dict[str, float]) -> dict[str, float]:
    """Returns what WebSocket costs ÷ what TCP does, and JSON ÷ msgpack, of each figure in CPU time."""
    found: dict[str, float] = {}
    for kind in KINDS:
        tcp, packed, text, events = [figures[f"{door}_{kind}_cpu_us"] for door in DOORS]
        found[f"{kind}_msgpack_to_tcp"] = packed / tcp
        found[f"{kind}_json_to_msgpack"] = text / packed
        found[f"{kind}_events_to_json"] = events / text
    found["beside_to_alone"] = figures["beside_cpu_us"] / figures["alone_cpu_us"]
    for case, part in product(("watched", "unpaced"), ("p50", "p99")):
        found[f"{case}_to_alone_{part}"] = figures[f"{case}_{part}_ms"] / figures[f"alone_{part}_ms"]
    return found


def run(served: Served, door: str, clients: int, turns: int, size: int) -> Run:
    """Returns the rate of events, and what one costs the daemon, from the first turn to the last client."""
    watching = _ready(watch, door, served, clients)
    writing = _ready(write, served.url, turns, size)
    with Measuring(served.pid) as measuring:
        writing.pipe.send("go")
        watching.pipe.recv()
    for side in (writing, watching):
        side.stop()
    return measuring.run(turns * size)


def _ready(function: Any, *args: object) -> Side:
    side = Side.start(function, *args)
    assert side.pipe.recv() == "ready"
    return side


async def write(url: str, turns: int, size: int, pipe: Connection) -> None:
    """Writes so many turns of messages; the last event says that it is the last."""
    async with dataspace.connect(url, name="bench writer") as space:
        pipe.send("ready")
        await trio.to_thread.run_sync(pipe.recv)
        for turn in range(turns):
            draft = space.draft()
            for n in range(size):
                is_last = turn == turns - 1 and n == size - 1
                draft.send(Record("says", turn * size + n, LAST.decode() if is_last else PADDING))
            await space.submit(draft)
        await space.drain(60)
        await trio.sleep_forever()


# -- clients that decode nothing ----------------------------------------------------------------------


async def watch(door: str, served: Served, clients: int, pipe: Connection) -> None:
    """Reads on so many connections until each has seen the last event."""
    await trio.lowlevel.checkpoint()
    address = served.url if door == "tcp" else served.others[0]
    port = int(address.rpartition(":")[2])
    waiting = selectors.DefaultSelector()
    for n in range(clients):
        waiting.register(_connected(door, port, n), selectors.EVENT_READ, bytearray())
    pipe.send("ready")
    left = clients
    while left:
        for key, _ in waiting.select():
            connected, tail = key.fileobj, key.data
            assert isinstance(connected, socket.socket)
            tail += connected.recv(1 << 20)
            if LAST in tail:
                waiting.unregister(connected)
                left -= 1
            del tail[: -len(LAST)]
    pipe.send("seen")
    await trio.sleep_forever()


def _connected(door: str, port: int, number: int, label: str = "says") -> socket.socket:
    """A connection that observes, and has heard the state."""
    if door == "events":
        connected = socket.create_connection(("127.0.0.1", port))
        target = f"/v1/spaces/main/observe?pattern={label}($i,$what)&policy=wait&quiet=true"
        connected.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        _until(connected, b"data:")  # the state
        return connected
    connected = _greeted(door, port, number)
    pattern = Record(label, capture("i"), capture("what"))
    spec = Map({"pattern": pattern, "quiet": True, "policy": "wait"})
    connected.sendall(_said(door, p.Open(1, spec, PLENTY, PLENTY)))
    connected.recv(4096)
    return connected


def _greeted(door: str, port: int, number: int) -> socket.socket:
    """A connection with a session."""
    connected = socket.create_connection(("127.0.0.1", port))
    if door != "tcp":
        connected.sendall(_upgrade(f"dataspace.1.{door}"))
        _until(connected, b"\r\n\r\n")
    connected.sendall(_said(door, p.Hello(1, f"~bench {number}", "bench", Map())))
    _until(connected, b"streams")  # the last of the limits in a welcome
    return connected


def _until(connected: socket.socket, end: bytes) -> None:
    heard = b""
    while end not in heard:
        heard += connected.recv(4096)


def _upgrade(subprotocol: str) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    lines = ["GET /ws HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}"]
    return "\r\n".join([*lines, f"Sec-WebSocket-Protocol: {subprotocol}", "", ""]).encode()


def _said(door: str, packet: p.Packet) -> bytes:
    """A packet as this door takes it; with a mask of zeros."""
    fields: tuple[Value, ...] = p.written(packet)
    body = json.dumps(to_json(fields)).encode() if door == "json" else pack(fields)
    if door == "tcp":
        return frame(body)
    kind = 0x81 if door == "json" else 0x82
    size = bytes((0x80 | len(body),)) if len(body) < 126 else b"\xfe" + len(body).to_bytes(2, "big")
    return bytes((kind,)) + size + b"\0\0\0\0" + body


if __name__ == "__main__":
    costs = [f"{door}_{kind}_cpu_us" for door in DOORS for kind in KINDS]
    costs += ["alone_cpu_us", "beside_cpu_us"]
    costs += [
        f"{who}_{what}"
        for who in ("alone", "watched", "unpaced")
        for what in ("p50_ms", "p99_ms", "cpu_share")
    ]
    report(__doc__, measure, least=costs, ratios=ratios)
