"""A client written from WIRE.md alone is served: it asserts, observes with credit, and comes back."""

from __future__ import annotations

import ast
import datetime
from pathlib import Path

import pytest

import dataspace
from dataspace import Record
from tests import wire_client as wire
from tests.server.processes import DaemonProcess
from tests.wire_client import Observation, WireClient, capture, record

pytestmark = pytest.mark.slow


def test_the_client_imports_nothing_of_the_project() -> None:
    tree = ast.parse(Path(wire.__file__).read_text())
    imported = {each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    imported |= {name.name for each in ast.walk(tree) if isinstance(each, ast.Import) for name in each.names}
    assert imported == {"__future__", "os", "socket", "struct", "collections.abc", "typing", "msgpack"}


def test_it_asserts_observes_with_credit_and_retracts(daemon: DaemonProcess) -> None:
    with (
        WireClient(daemon.port, "from the page") as client,
        dataspace.connect_blocking(daemon.url) as witness,
    ):
        seen = Observation(client, record("present", capture("who")), items=2)
        epoch, _, flags, *rows, _ = seen.next()
        assert (flags, rows) == (wire.STATE, [[], [], []])
        first = client.turn(
            [wire.ASSERT, 1, record("present", "Ann")], [wire.SEND, record("present", "bell")]
        )
        others = [client.turn([wire.ASSERT, n, record("present", n)]) for n in range(2, 12)]
        epochs = [client.epoch(each) for each in (first, *others)]
        assert epochs == sorted(set(epochs)) and epochs[0] > epoch
        told = [seen.next() for _ in epochs]
        assert [each[0] for each in told] == epochs
        assert told[0][3:6] == [[["Ann"]], [["bell"]], []]
        assert [each[3] for each in told[1:]] == [[[n]] for n in range(2, 12)]
        assert len(witness.matches("present($who)")) == 11
        client.epoch(client.turn([wire.REPLACE, 1, 50, record("present", "Ben")]))
        assert seen.next()[3:6] == [[["Ben"]], [], [["Ann"]]]
        assert client.refusal(client.turn([wire.RETRACT, 1])) == "unknown-handle"
        frontier = client.request("frontier", after=0)
        assert frontier["epoch"] >= epochs[-1] and frontier["oldest"] == 1


VALUES = [
    None,
    True,
    -1,
    1.5,
    "text",
    b"bytes",
    [1, [2]],
    1 << 64,
    -(1 << 71),
    (1 << 71) - 1,
    datetime.datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=datetime.UTC),
    {"k": 1},
]


def test_its_values_are_those_of_the_library(daemon: DaemonProcess) -> None:
    with WireClient(daemon.port, "values") as client, dataspace.connect_blocking(daemon.url) as witness:
        client.epoch(client.turn([wire.ASSERT, 1, record("theirs", *VALUES)]))
        fields = ", ".join(f"${'abcdefghijkl'[at]}" for at in range(len(VALUES)))
        (row,) = witness.matches(f"theirs({fields})")
        assert Record("v", *row) == Record("v", *VALUES)
        with witness.asserting(Record("ours", *VALUES)):
            seen = Observation(client, record("ours", *[capture("abcdefghijkl"[at]) for at in range(12)]))
            assert seen.next()[3] == [VALUES]


def test_it_comes_back_to_its_session_and_misses_nothing(daemon: DaemonProcess) -> None:
    with (
        WireClient(daemon.port, "comes back", grace=20_000) as client,
        dataspace.connect_blocking(daemon.url) as witness,
    ):
        seen = Observation(client, record("n", capture("n")), items=3)
        assert seen.next()[2] == wire.STATE
        client.epoch(client.turn([wire.ASSERT, 1, record("here")]))
        for n in range(5):
            witness.send(Record("n", n))
        assert [seen.next()[4] for _ in range(2)] == [[[0]], [[1]]]
        lost = client.turn([wire.SEND, record("n", 5)])
        client.reconnect()
        assert client.resumed and witness.matches("here()") == [()], "its fact never went"
        seen.resume()
        assert [seen.next()[4] for _ in range(4)] == [[[2]], [[3]], [[4]], [[5]]], (
            "and the turn took effect once"
        )
        client.epoch(lost)
        assert client.unanswered == {}
        client.epoch(client.turn([wire.RETRACT, 1]))
        assert witness.matches("here()") == []


def test_it_learns_which_versions_are_spoken(daemon: DaemonProcess) -> None:
    with WireClient(daemon.port, "later") as client:
        with pytest.raises(wire.Lost, match="version: spoken 1 to 1, got 9"):
            client.connect(version=9)
        client.features["spoken"] = True
        client.connect()
        spoken = client.welcome[7]["spoken"]
        assert spoken["versions"] == [1, 1] and "frontier" in spoken["verbs"]
        assert "after" in spoken["kinds"]["observe"]
