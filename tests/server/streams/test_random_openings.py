"""Streams opened, asked, peeked into and aborted in any order, with any options: only typed errors.

A stream may be closed before the tasks that feed it have begun, or be refused while others of its tasks are
about to begin; nothing of that may end the session.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings, strategies as st

from dataspace.kernel.actions import ASSERT
from dataspace.wire import packets as p
from index.patterns.patterns import capture
from index.values.values import Map, Record, Value
from server.connections.dispatch import ClientPeer
from server.sessions.peer import PEERS
from server.streams.observations import OBSERVATIONS
from tests.server.peers import PLENTY
from tests.server.streams.inside import Inside, Wire, inside

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))

STREAMS: Final = 4
TYPED: Final = {"bad-request", "epoch-ahead", "epoch-gone", "epoch-lost", "limit", "no-space", "read-only"}
TYPED_OF_TOPICS: Final = {"no-topic", "unknown-topic"}

_epochs: Final = st.sampled_from([0, 1, 2, 3, 5, 1 << 20, (1 << 63) - 1])
_odd: Final = st.sampled_from([None, True, -1, 1.5, "x", ()])
_flags: Final = st.booleans() | st.booleans() | _odd
_options: Final = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["observe", "observe", "columns", "columns", "topic", 7]),
        "space": st.sampled_from(["main", "main", "system", "nowhere", 3]),
        "pattern": st.sampled_from([capture("x"), Record("v", capture("n")), Record("v", 1)]),
        "snapshot": _flags,
        "after": _epochs | _odd,
        "as_of": _epochs | _odd,
        "upto": _epochs | _odd,
        "durable": _flags,
        "quiet": _flags,
        "net": _flags,
        "policy": st.sampled_from(["conflate", "wait", "fail", "drop", "bogus", 0]),
        "progress": st.just(True) | _flags,
        "pace": st.sampled_from([0, 1, 50, 60_000]) | _odd,
        "captures": st.sampled_from([(), (0,), (1,), "x", (1, 0)]),
        "places": _flags,
        "asserted": _flags,
        "unknown": st.just(1),
    },
)
_number: Final = st.integers(0, STREAMS - 1)
_credit: Final = st.sampled_from([0, 1, 100, PLENTY])
_steps: Final = st.one_of(
    st.tuples(st.just("open"), _options, _credit, _credit),
    st.tuples(st.just("open"), _options, _credit, _credit),
    st.tuples(st.just("abort"), _number, st.booleans()),
    st.tuples(st.just("abort"), _number, st.booleans()),
    st.tuples(st.just("ask"), _number, _credit, _credit),
    st.tuples(st.just("peek"), _number, st.sampled_from([0, 1, 2, 1000])),
    st.tuples(st.just("turn")),
    st.tuples(st.just("hold")),
    st.tuples(st.just("release")),
    st.tuples(st.just("rest")),
)
Step = tuple[Any, ...]


class Machine:
    """One connection, and the steps that are drawn; packets of several steps leave together."""

    def __init__(self, daemon: Inside, wire: Wire) -> None:
        self._daemon = daemon
        self._wire = wire
        self._due: list[p.Packet] = []
        self._opened = self._pings = self._facts = 0

    async def run(self, steps: Sequence[Step]) -> None:
        """All steps; the session must be alive after them and nothing may be left of closed streams."""
        for name, *args in steps:
            await getattr(self, f"_{name}")(*args)
        await self._rest()
        for number in range(1, self._opened + 1):
            self._due.append(p.Abort(number, "", True))
        await self._release()
        await self._rest()
        await trio.testing.wait_all_tasks_blocked()
        (connection,) = self._daemon.daemon.parts[PEERS].values()
        assert isinstance(connection, ClientPeer)
        assert not connection.streams and not self._daemon.daemon.guests.streams
        assert not connection.feeder(OBSERVATIONS)._marks and not self._daemon.daemon.delivery.patterns
        while connection.feeder(OBSERVATIONS)._replays:  # a thread may be reading for one of them
            await trio.lowlevel.checkpoint()
        room = self._daemon.daemon.delivery.budget
        assert (room.used, room.observers) == (0, 0)

    async def _open(self, options: dict[str, Value], items: int, size: int) -> None:
        self._opened += 1
        spec = {"pattern": Record("v", capture("n")), **options}
        self._due.append(p.Open(self._opened, Map(spec), items, size))

    async def _abort(self, back: int, answer: bool) -> None:
        if back < self._opened:
            self._due.append(p.Abort(self._opened - back, "", answer))

    async def _ask(self, back: int, items: int, size: int) -> None:
        if back < self._opened:
            self._due.append(p.Ask(self._opened - back, items, size))

    async def _peek(self, back: int, items: int) -> None:
        if back < self._opened:
            self._due.append(p.Peek(self._opened - back, items))

    async def _turn(self) -> None:
        self._facts += 1
        action = (ASSERT, self._facts, Record("v", self._facts % 3))
        self._daemon.hosted.commit("durable:a", [action])
        self._daemon.hosted.flush()

    async def _hold(self) -> None:
        self._daemon.hold()

    async def _release(self) -> None:
        self._daemon.release()

    async def _rest(self) -> None:
        """Says all that is due in one go, and hears until that was acted on."""
        self._pings += 1
        await self._wire.say(*self._due, p.Ping(self._pings))
        self._due.clear()
        with trio.fail_after(10):
            while (packet := await self._wire.hear()) != p.Pong(self._pings):
                assert packet is not None and not isinstance(packet, p.Bye), packet
                if isinstance(packet, p.Error):
                    assert packet.code in TYPED | TYPED_OF_TOPICS, packet


def play(steps: Sequence[Step]) -> None:
    """Plays the steps against a new daemon."""

    async def main() -> None:
        async with inside(Path(directory)) as daemon:
            wire = daemon.connect()
            await wire.greet()
            await Machine(daemon, wire).run(steps)

    with tempfile.TemporaryDirectory() as directory:
        trio.run(main)


@pytest.mark.slow
@pytest.mark.torture
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60 * ROUNDS or 20)
@given(st.lists(_steps, max_size=20))
def test_whatever_is_opened_and_aborted_only_typed_errors_come(steps: list[Step]) -> None:
    play(steps)


@pytest.mark.parametrize(
    "options", [{"progress": True}, {"progress": True, "after": 1 << 20}, {"after": 1}, {"after": 1 << 20}]
)
def test_a_stream_that_is_aborted_at_once(options: dict[str, Value]) -> None:
    play([("turn",), ("turn",), ("open", options, 0, 0), ("abort", 0, True), ("rest",)])


def test_a_stream_that_is_refused_while_its_marks_are_about_to_begin() -> None:
    play([("open", {"progress": True, "after": 1 << 20}, 1, 1), ("rest",), ("rest",)])


@pytest.mark.parametrize("options", [{}, {"upto": 0}, {"upto": 0, "durable": True, "after": 1 << 20}])
def test_a_stream_of_columns_that_is_refused_counts_as_no_observer(options: dict[str, Value]) -> None:
    play([("open", {"kind": "columns", **options}, 0, 0)])
