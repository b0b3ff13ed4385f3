"""Two daemons of which one takes over, for groups that go on there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.processes import DaemonProcess, running, stand_by


@pytest.fixture(params=["stand-by", "PostgreSQL"])
def successors(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    """Two running daemons: the first leads, and the second takes over after it."""
    if request.param == "PostgreSQL":
        url = request.getfixturevalue("postgres_url")
        monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "1s")
        pair = DaemonProcess(url), DaemonProcess(url)
    else:
        pair = DaemonProcess(tmp_path / "data"), stand_by(tmp_path / "data")
    with running(*pair):
        yield pair
