"""A daemon in this process with an admin address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from index.values.values import Map
from server.config.model import Config, Limits
from server.config.rights import Key, Rights
from server.daemon.serve import serve
from server.monitoring import pages

OPERATOR = "the secret of an operator"
SENSOR = "the secret of a sensor"
KEYS = (
    Key("operator", OPERATOR),
    Key("sensor", SENSOR, Rights.read(Map({"assert": ("reading(_)",), "observe": ("reading(_)",)}))),
)


@dataclass(frozen=True)
class Served:
    """Where a daemon listens, and where it is looked at."""

    url: str
    admin: str
    data: Path


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scrape is read anew."""
    monkeypatch.setattr(pages, "FRESH_SECONDS", 0.0)


@pytest.fixture
async def served(tmp_path: Path, nursery: trio.Nursery, limits: Limits) -> AsyncIterator[Served]:
    """A daemon whose clients need no token."""
    config = Config(("tcp:127.0.0.1:0",), tmp_path / "data", limits=limits, admin="tcp:127.0.0.1:0")
    url, admin = await nursery.start(serve, config)
    yield Served(url, admin, tmp_path / "data")


@pytest.fixture
async def guarded(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Served]:
    """A daemon whose clients need the token of the operator or of a sensor."""
    config = Config(("tcp:127.0.0.1:0",), tmp_path / "data", keys=KEYS, admin="tcp:127.0.0.1:0")
    url, admin = await nursery.start(serve, config)
    yield Served(url, admin, tmp_path / "data")
