"""An example ends in good order, whatever it is at, and says what it misses."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from examples.flights.processes import Program
from examples.spark.common import _unhurried, ready


def ended(*needs: str) -> object:
    """With what a program ends that is nothing but an example."""
    with pytest.raises(SystemExit) as ending, ready("nothing", needs=needs):
        raise AssertionError("it ran")
    return ending.value.code


def test_what_is_not_installed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("pyspark", "panda_bears") == 1
    assert "this example needs panda_bears, not installed here: the extras" in capsys.readouterr().err


def test_that_there_is_no_java_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert ended() == 1
    assert "Spark needs a Java runtime, 17 or newer: no java" in capsys.readouterr().err


def test_an_interruption_while_spark_starts_waits_until_it_has_started() -> None:
    went_on = False
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark, if it ran here, has its own
    try:
        with pytest.raises(KeyboardInterrupt), _unhurried():
            os.kill(os.getpid(), signal.SIGINT)
            went_on = True
        assert went_on
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_program_that_is_interrupted_while_it_comes_up_is_gone(tmp_path: Path) -> None:
    class Interrupted(Program):
        def start(self) -> None:
            super().start()
            raise KeyboardInterrupt

    program = Interrupted("http.server", "0", log=tmp_path / "log")
    with pytest.raises(KeyboardInterrupt), program:
        raise AssertionError("it came up")
    assert program.poll() is not None
