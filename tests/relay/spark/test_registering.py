"""Registering is one import or one call, and loads no more than it must."""

from __future__ import annotations

import os
import subprocess
import sys
from inspect import getsource
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

import dataspace.spark
from relay.spark.sessions import _warn_of_another_python, configure


def python(code: str) -> str:
    """What a fresh Python prints that runs some code from the directory of the sources."""
    top = str(Path(dataspace.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], cwd=top, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def loaded(module: str, *suspects: str) -> str:
    """Which of some modules come along when another is imported."""
    return python(f"import sys, {module}; print([name for name in {suspects} if name in sys.modules])")


def test_importing_loads_neither_spark_nor_arrow() -> None:
    assert loaded("dataspace.spark", "pyspark", "pyarrow", "trio") == "[]"


def test_an_executor_loads_nothing_of_the_daemon() -> None:
    assert loaded("relay.spark.format", "trio", "server", "sqlite3") == "[]"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP", "PYTHONPATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("environment")
def test_configuring_sets_what_the_builder_does_not() -> None:
    given = SparkSession.builder.config("spark.ui.enabled", "true")
    options = configure(given)._options
    assert options["spark.ui.enabled"] == "true"
    assert options["spark.python.unix.domain.socket.enabled"] == "true"
    assert "FileSystemBased" in options["spark.sql.streaming.checkpointFileManagerClass"]
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.usefixtures("environment")
def test_the_builder_of_a_client_of_spark_connect_is_left_as_it_is() -> None:
    options = configure(SparkSession.builder.remote("sc://127.0.0.1:15002"))._options
    assert options == {"spark.remote": "sc://127.0.0.1:15002"}


@pytest.mark.usefixtures("environment")
def test_checkpoints_in_an_object_store_keep_sparks_own_way() -> None:
    options = configure(SparkSession.builder, local_checkpoints=False)._options
    assert "spark.sql.streaming.checkpointFileManagerClass" not in options


@pytest.mark.usefixtures("environment")
def test_workers_that_are_not_reused_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="every Python task takes about 0.9 s"):
        configure(SparkSession.builder.config("spark.python.worker.reuse", "false"))


class Absent:
    """Hides an installed package from imports."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] == self._name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize(
    "use", ["dataspace.spark.session()", "dataspace.spark.frame", "from dataspace.spark import keep"]
)
@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_spark_the_extra_is_named(missing: str, use: str) -> None:
    if missing == "pyarrow" and use.endswith("session()"):
        use = "dataspace.spark.register(None)"
    code = (
        f"import sys\n{getsource(Absent)}\n"
        f"[sys.modules.pop(each) for each in [*sys.modules] if each.partition('.')[0] == {missing!r} "
        "or '.relay.spark.' in '.' + each]; "
        f"sys.meta_path.insert(0, Absent({missing!r}))\n"
        f"import dataspace.spark\ntry:\n    {use}\nexcept dataspace.UsageError as error:\n    print(error)"
    )
    assert python(code) == (
        f"{missing} is not installed, and dataspace.spark needs it: pip install 'dataspace-server[spark]'"
    )


@pytest.mark.parametrize(
    ("executable", "is_other"), [(sys.executable, False), ("sh", True), ("no-python", True)]
)
def test_workers_with_another_python_are_warned_of(
    executable: str, is_other: bool, recwarn: pytest.WarningsRecorder
) -> None:
    context = SimpleNamespace(master="local[2]", pythonExec=executable)
    _warn_of_another_python(SimpleNamespace(_sc=context))  # type: ignore[arg-type]  # as much of a session as is read
    found = [str(each.message) for each in recwarn]
    assert len(found) == is_other
    assert all(f"set PYSPARK_PYTHON={sys.executable} before" in each for each in found)
    recwarn.clear()
    context.master = "spark://elsewhere:7077"
    _warn_of_another_python(SimpleNamespace(_sc=context))  # type: ignore[arg-type]  # as above
    assert not [*recwarn]


@pytest.mark.slow
@pytest.mark.spark
def test_importing_registers_in_a_session_that_is_active(spark: SparkSession) -> None:
    """What a notebook sees: the session is there before the import is."""
    import importlib

    registered: list[object] = []
    importlib.reload(dataspace.spark)
    registered.append(spark.read.format("dataspace").option("pattern", "p($x)").load().columns)
    assert registered == [["x", "_change_type", "_epoch", "_epoch_timestamp", "_seq"]]
