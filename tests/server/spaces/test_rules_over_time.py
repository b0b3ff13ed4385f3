"""Rules over time in a daemon: epochs come by themselves, and a kill takes nothing of the past away."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dataspace import connect_blocking
from index.values.values import Record
from tests.server.processes import DaemonProcess, running, stand_by

pytestmark = pytest.mark.slow

RULES = """
busy($d, count($v)) <- reading($d, $v) within 1 h.
came($d, $t) <- device($d) at $t.
held($d) <- (device($d)) for 200 ms.
short($d) <- reading($d, _) within 300 ms.
"""


def test_time_goes_on_by_itself_and_after_a_kill(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    try:
        with connect_blocking(daemon.url, owner="durable:test") as space:
            space.assert_(Record("rule", "r", RULES))
            space.assert_(Record("device", "a"))
            with space.observe("held($d)") as held:
                assert next(iter(held)).captures == ("a",)
            with space.observe("short($d)") as short:
                changes = iter(short)
                space.send(Record("reading", "a", 1))
                space.send(Record("reading", "a", 1))
                assert [next(changes).kind, next(changes).kind] == ["+", "-"]
            came = space.matches("came($d, $t)")
            assert len(came) == 1
        daemon.kill()
        daemon.start()
        with connect_blocking(daemon.url, owner="durable:test") as space:
            assert space.matches("came($d, $t)") == came
            assert space.matches("held($d)") == [("a",)]
            assert space.matches("busy($d, $n)") == [("a", 2)]
            space.send(Record("reading", "a", 1))
            assert space.matches("busy($d, $n)") == [("a", 3)]
    finally:
        daemon.kill()


def test_a_stand_by_goes_on_with_windows_and_waits(tmp_path: Path) -> None:
    leader, following = DaemonProcess(tmp_path / "data"), stand_by(tmp_path / "data")
    with running(leader, following):
        with connect_blocking(leader.url, owner="durable:test") as space:
            space.assert_(Record("rule", "r", RULES))
            space.assert_(Record("device", "a"))
            for value in (1, 1, 2):
                space.send(Record("reading", "a", value))
            came = space.matches("came($d, $t)")
            space.assert_(Record("rule", "late", "late($d) <- (device($d)) for 3 s."))
        leader.kill()
        with connect_blocking(following.url, owner="durable:test", wait=60) as space:
            space.send(Record("reading", "a", 1))
            assert space.matches("busy($d, $n)") == [("a", 4)]
            assert space.matches("came($d, $t)") == came, "since when a fact holds is as it was"
            with space.observe("late($d)") as late:
                change = next(iter(late))
            assert change.captures == ("a",)
            assert change.snapshot or change.micros % 10_000 == 0, "at an instant"


def test_turns_wait_while_many_rows_leave_in_slices_and_the_epoch_is_whole(tmp_path: Path) -> None:
    rows, daemon = 6_000, DaemonProcess(tmp_path / "data")
    with running(daemon), connect_blocking(daemon.url, owner="durable:test") as space:
        space.assert_(Record("rule", "r", "open($n) <- job($n, $until), now < $until."))
        until = datetime.now(UTC) + timedelta(seconds=4)
        for first in range(0, rows, 2_000):
            with space.turn() as turn:
                for n in range(first, first + 2_000):
                    turn.assert_(Record("job", n, until))
        turns, found = 0, set[int]()
        with connect_blocking(daemon.url, owner="durable:other") as other:
            while 0 not in found:
                other.assert_(Record("turn", turns))
                turns += 1
                found.add(len(other.matches("open($n)")))
            assert len(other.matches("turn($n)")) == turns
        assert found == {rows, 0}, "all leave in one epoch"
