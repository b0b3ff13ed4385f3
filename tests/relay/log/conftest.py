"""Logs to test with: in a directory of their own, filled by a real space."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.log.log import Log


@pytest.fixture
def log(home: str, tmp_path: Path) -> Iterator[Log]:
    """An empty log, closed at the end."""
    opened = Log.open(tmp_path)
    yield opened
    opened.close()
