"""The pages of an operator are on the HTTP listener as well; metrics need the right to inspect there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.web.routes.callers import HttpDaemon

OPERATOR = "the secret of an operator"
SENSOR = "the secret of a sensor"
TOKENS = f"""
[[tokens]]
name = "operator"
secret = "{OPERATOR}"

[[tokens]]
name = "sensor"
secret = "{SENSOR}"
observe = true
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    where: Path = tmp_path_factory.mktemp("operators")
    config = where / "dataspace.toml"
    config.write_text(TOKENS)
    config.chmod(0o600)
    process = HttpDaemon(where / "data", "--config", str(config))
    process.start()
    yield process
    assert process.stop() == 0


def test_whether_it_is_well_is_seen_by_all(guarded: HttpDaemon) -> None:
    for path in ("/healthz", "/readyz"):
        said = guarded.get(path)
        assert (said.status, said.body) == (200, b"ok\n")


def test_metrics_are_seen_by_those_who_may_inspect(guarded: HttpDaemon) -> None:
    assert guarded.get("/metrics").problem()[:2] == (401, "unauthorized")
    assert guarded.get("/metrics", token=SENSOR).problem()[:2] == (403, "not-allowed")
    said = guarded.get("/metrics", token=OPERATOR)
    assert said.status == 200 and b"\ndataspace_ready 1.0\n" in said.body
    assert said.headers["content-type"].startswith("text/plain; version=0.0.4")
