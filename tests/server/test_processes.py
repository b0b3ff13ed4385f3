"""A daemon of a test ends with the tests, whatever fails in them, so nothing keeps their output open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server import processes
from tests.server.processes import DaemonProcess

FAILING = """
import sys
from pathlib import Path
from tests.server.processes import DaemonProcess

daemon = DaemonProcess(Path(sys.argv[1]))
daemon.start()
print(daemon.process.pid, flush=True)
raise AssertionError("before it was stopped")
"""


@pytest.mark.slow
def test_a_daemon_that_was_not_stopped_is_killed_at_the_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FAILING, str(tmp_path / "data")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    failed = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert failed.returncode == 1 and "before it was stopped" in failed.stderr
    assert not Path(f"/proc/{failed.stdout.strip()}/fd/1").exists()  # gone, or waits for init to be asked


@pytest.mark.slow
def test_a_daemon_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    daemon.process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(processes, "PATIENCE", 0.1)
    with pytest.raises(subprocess.TimeoutExpired):
        daemon.stop()
    assert daemon.process.wait() == -signal.SIGKILL
    daemon.wait()
