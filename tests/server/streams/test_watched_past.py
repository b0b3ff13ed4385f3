"""What the commands say of the past while somebody watches the same facts: nothing is left out."""

from __future__ import annotations

import json

import pytest

import dataspace
from dataspace import Record
from tests import warm
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

FACTS = 300


def _run(daemon: DaemonProcess, *words: str) -> list[dict[str, object]]:
    done = warm.run(*words, "--url", daemon.url, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_an_observer_of_the_past_beside_one_of_now(daemon: DaemonProcess) -> None:
    """Its interest is a fact already: a claim without a visible change, made just before it reads."""
    with dataspace.connect_blocking(daemon.url, owner="keeper") as space, space.observe("v($n)"):
        epochs = []
        for n in range(FACTS):
            with space.turn() as turn:
                turn.assert_(Record("v", n))
            assert turn.epoch is not None
            epochs.append(turn.epoch)
        last = epochs[-1]
        for first in (last, last - 1, last - 2, last - 5):
            told = _run(daemon, "observe", "v($n)", "--from", str(first), "--until", str(last))
            assert [line["epoch"] for line in told] == epochs[epochs.index(first) :], first
        told = _run(daemon, "log", "v($n)", "--from", str(last - 2))
        assert [line["epoch"] for line in told] == epochs[-3:]
