"""A follower warns of a leader that does not answer, not of a leader that broke one connection."""

from __future__ import annotations

import select
import socket
from pathlib import Path

import pytest

import dataspace
from server.cluster.directory.contact import SOCKET
from tests.server.processes import DaemonProcess, follower, running

pytestmark = pytest.mark.slow

SAID = "does not answer: "


def reset(place: Path, times: int) -> None:
    """Takes the place of the leader, and breaks so many connections of the follower."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()
        listening.settimeout(60)
        for _ in range(times):
            connected, _ = listening.accept()
            with connected:
                assert select.select([connected], [], [], 60)[0]  # closed with what is not read, it is reset
    place.unlink()


@pytest.mark.parametrize("times", [1, 3])
def test_a_connection_that_breaks_once_is_no_reason_to_warn(tmp_path: Path, times: int) -> None:
    leader = DaemonProcess(tmp_path / "data")
    leader.start()
    leader.stop()
    reader = follower(leader.data)
    with running(reader):
        reset(leader.data / SOCKET, times)
        with running(leader), dataspace.connect_blocking(reader.url, read="any") as space:
            while not space.status()["leader"]:
                pass
        reader.stop()
        assert reader.errors.count(SAID) == times - 1, reader.errors
