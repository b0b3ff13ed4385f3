"""One Spark session and one daemon for all tests of this folder; a test that kills one starts its own."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import warm
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.home import QUICK, environment
from tests.relay.spark.warm_planners import python_of_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session", autouse=True)
def spark_home() -> Iterator[None]:
    """Has programs start Spark as they do in tests."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment().items():
            patched.setenv(name, value)
        patched.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patched.setattr(subprocess, "Popen", warm.Popen)  # daemons are those of the demo
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    import dataspace.spark

    builder = SparkSession.builder.master("local[2]").appName("tests")
    builder = builder.config("spark.driver.extraJavaOptions", QUICK)
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYSPARK_PYTHON", python_of_spark())
        session = dataspace.spark.session(builder)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that tests share: each makes facts with a label of its own."""
    with Daemon(tmp_path_factory.mktemp("daemon")) as shared:
        yield shared


@pytest.fixture
def own_daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that nobody else uses, to be killed and counted on."""
    with Daemon(tmp_path / "daemon") as own:
        yield own


@pytest.fixture
def label() -> str:
    """A label that no other test uses."""
    return f"l{uuid.uuid4().hex[:12]}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[[], str]:
    """Where a query of this test keeps its place; the same at every call."""
    return lambda: str(tmp_path / "checkpoint")
