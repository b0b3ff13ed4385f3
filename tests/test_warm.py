"""A forked process is as one that has loaded the command itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.ports import free_port
from tests.server.namespaces import Network, refusal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only"),
]


def forked(*words: str, **environment: str) -> warm.Popen:
    pipe = subprocess.PIPE
    process = warm.Popen(
        [*warm.PYTHON, "dataspace", *words], env=os.environ | environment, text=True, stdout=pipe, stderr=pipe
    )
    assert b"tests.warm" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    return process


def serving(place: Path, **environment: str) -> warm.Popen:
    listen = f"tcp:127.0.0.1:{free_port()}"
    return forked("serve", "--data", str(place), "--listen", listen, **environment)


def test_it_has_its_own_words_environment_streams_and_exit_code() -> None:
    unreachable = forked("status", DATASPACE_URL="tcp://127.0.0.1:1")
    wrong = forked("status", "--nothing")
    out, errors = unreachable.communicate()
    assert (unreachable.returncode, out) == (3, "") and "127.0.0.1:1" in errors
    out, errors = wrong.communicate()
    assert (wrong.returncode, out) == (2, "") and "--nothing" in errors
    assert warm.run("--version").stdout == warm.run("--version", env={"PYTHONUTF8": "1"}).stdout != ""


def test_it_is_a_child_that_ends_by_signals_and_faults(tmp_path: Path) -> None:
    for number, status in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        daemon = serving(tmp_path / str(number))
        assert daemon.stdout is not None and "listening on" in daemon.stdout.readline()
        assert os.getpid() == int(Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()[1])
        daemon.send_signal(number)
        daemon.communicate(timeout=60)
        assert daemon.returncode == status
    with serving(tmp_path / "struck", DATASPACE_FAULT="no such name") as refused:
        assert refused.wait(60) == 1


def test_it_is_in_the_network_of_the_test_wherever_the_first_one_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if words := refusal():
        pytest.skip(words)
    network = Network("one")
    try:
        forking = network.run("one", warm.Forking)
        monkeypatch.setattr(warm, "_forking", lambda _: forking)
        daemon = serving(tmp_path)
        assert daemon.stdout is not None and "listening on" in daemon.stdout.readline()
        found = os.readlink(f"/proc/{daemon.pid}/ns/net")
        daemon.terminate()
        daemon.communicate(timeout=60)
        forking.close()
    finally:
        network.end()
    assert found == os.readlink(warm.NETWORK)


def test_other_programs_and_what_an_interpreter_reads_are_not_forked() -> None:
    for words, environment in (
        ([sys.executable, "-c", "pass"], {}),
        ([sys.executable, "-X", "dev", "-m", "dataspace", "--version"], {}),
        ([*warm.PYTHON, "dataspace", "--version"], {"PYTHONUTF8": "1"}),
        ([*warm.PYTHON, "dataspace", "--version"], {"PYTHONPATH": "/another"}),
        ([*warm.PYTHON, "dataspace", "--version"], {"PLANTED": "message-twice"}),
    ):
        with warm.Popen(words, env=os.environ | environment, stdout=subprocess.DEVNULL) as process:
            assert b"tests.warm" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
