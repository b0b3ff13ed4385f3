"""A child process is started again whenever it ends, and none outlives the block that runs it."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from typing import Any

import pytest
import trio

from server.children import keep_running, running
from server.pauses import Pauses

SLEEPS = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"]
DEAF = [sys.executable, "-c", f"import signal; signal.signal({signal.SIGTERM}, signal.SIG_IGN); {SLEEPS[2]}"]


class Ended:
    """A process that has ended."""

    pid = 7

    async def wait(self) -> int:
        await trio.lowlevel.checkpoint()
        return -signal.SIGKILL


async def test_it_is_started_again_after_pauses_that_double_until_it_runs_well(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    runs = iter([1.0, 1.0, 31.0, 1.0, 0.0])

    async def run() -> Any:
        if not (seconds := next(runs)):
            raise OSError(errno.EMFILE, "Too many open files")
        await trio.sleep(seconds)
        return Ended()

    with trio.move_on_after(37.5):
        await keep_running("it", run, Pauses(0.5, 10.0, 30.0), event="it-ended")
    assert [record.getMessage() for record in caplog.records] == [
        "it[7] was ended by SIGKILL; it is started again in 0.5 s",
        "it[7] was ended by SIGKILL; it is started again in 1 s",
        "it[7] was ended by SIGKILL; it is started again in 0.5 s",
        "it[7] was ended by SIGKILL; it is started again in 1 s",
        "it cannot be started: Too many open files; it is started again in 2 s",
    ]


@pytest.mark.parametrize(("command", "code"), [(SLEEPS, -signal.SIGTERM), (DEAF, -signal.SIGKILL)])
async def test_at_the_end_it_is_terminated_and_then_killed(command: list[str], code: int) -> None:
    async with running(command, 0.1 if command is DEAF else 60.0, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        await process.stdout.receive_some()
    assert process.returncode == code


async def test_none_is_left_wherever_its_start_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Started(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Started)
    for tenths in range(40):  # a start takes some milliseconds
        with trio.move_on_after(tenths / 10_000):
            async with running(SLEEPS, 60.0, stdout=subprocess.DEVNULL):
                await trio.sleep_forever()
        assert None not in [each.returncode for each in started]
    assert started
