"""One daemon for the routes: each test has facts of its own labels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.web.routes.callers import HttpDaemon


@pytest.fixture(scope="package")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    process = HttpDaemon(tmp_path_factory.mktemp("routes") / "data")
    process.start()
    yield process
    assert process.stop() == 0
