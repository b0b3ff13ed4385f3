"""The commands about topics do what a user sees, as processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest

import dataspace
from dataspace import BlockingSpace, Record
from tests.server.processes import DaemonProcess
from tests.server.test_command import Running, _words, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    process = DaemonProcess(tmp_path_factory.mktemp("daemon") / "data")
    process.start()
    yield process
    assert process.stop() == 0


@pytest.fixture
def space(daemon: DaemonProcess) -> Iterator[BlockingSpace]:
    with dataspace.connect_blocking(daemon.url) as connected:
        yield connected


class Publishing:
    """``topic publish`` with lines that it is given."""

    def __init__(self, url: str, *words: str) -> None:
        command, environment = _words(url, "topic", "publish", *words)
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def say(self, line: str) -> None:
        assert self.process.stdin is not None  # a pipe, as asked for
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def __enter__(self) -> Publishing:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def wait_for(url: str, pattern: str) -> None:
    """Returns when the catalogue has a fact like this."""
    with dataspace.connect_blocking(url, space="system") as system:
        for change in system.observe(pattern):
            assert change.kind == "+"
            return


def test_lines_are_epochs_and_a_killed_publisher_has_crashed(daemon: DaemonProcess) -> None:
    with (
        Running(daemon.url, "topic", "subscribe", "readings", "--wait", "30s") as seen,
        Publishing(daemon.url, "readings", "--times") as told,
    ):
        wait_for(daemon.url, 'subscription("readings")')
        told.say('3 reading("d1", 21.5)')
        told.say('3 reading("d2", 19.0)')
        told.say('4 reading("d1", 21.7)')
        assert [seen.line(), seen.line()] == ['3 reading("d1", 21.5)\n', '3 reading("d2", 19.0)\n']
        told.process.send_signal(signal.SIGKILL)
        assert seen.line() == "# partition 0 lost a producer that was at 4: the peer closed the connection\n"
        assert seen.line() == '4 reading("d1", 21.7)\n'
        assert seen.line() == "# 4 may be incomplete: the peer closed the connection\n"
        assert seen.process.wait(timeout=30) == 0


def test_what_is_retained_can_be_read_again_as_json(daemon: DaemonProcess) -> None:
    with Publishing(daemon.url, "kept", "--retain", "100000") as told:
        for n in range(4):
            told.say(f"n({n})")
        wait_for(daemon.url, 'publication("kept")')
        words = ("topic", "subscribe", "kept", "--wait", "10s", "--from", "1", "--until", "3", "--json")
        while "yet to come" in (done := run(daemon.url, *words)).stderr:
            pass  # the lines are on their way
        assert [json.loads(line)["time"] for line in done.stdout.splitlines()] == [1, 2]


def test_list_tells_what_there_is(daemon: DaemonProcess) -> None:
    assert run(daemon.url, "topic", "list").stdout == ""
    with Publishing(daemon.url, "seen", "--partitions", "2"):
        with Running(daemon.url, "topic", "subscribe", "seen", "--wait", "30s", "--progress") as seen:
            assert seen.line() == "# frontier 0\n"
            told = run(daemon.url, "topic", "list").stdout
            wanted = "seen 2 partitions, 0 dimensions, 1 publications, 1 subscriptions"
            assert " ".join(told.split()) == wanted


def test_a_topic_that_is_not_there_is_named(daemon: DaemonProcess) -> None:
    done = run(daemon.url, "topic", "subscribe", "nothing")
    assert (done.returncode, done.stderr) == (
        1,
        "dataspace: no-topic: no topic named 'nothing', there are 0\n",
    )


def test_observe_begins_and_ends_at_epochs(daemon: DaemonProcess, space: BlockingSpace) -> None:
    epochs = []
    for n in range(4):
        space.assert_(Record("step", n))
        epochs.append(space.sync())
    first, last = epochs[1], epochs[2]
    done = run(daemon.url, "observe", "step($n)", "--from", str(first), "--until", str(last), "--progress")
    lines = done.stdout.splitlines()
    assert lines[:2] == [f"{first} + n=1", f"{last} + n=2"] and lines[-1] == f"# all to epoch {last}"
    gone = space.assert_(Record("step", 9))
    space.retract(gone)
    words = ("observe", "step($n)", "--from", str(first), "--conflate", "--count", "3")
    assert [line[-3:] for line in run(daemon.url, *words).stdout.splitlines()[1:]] == ["n=1", "n=2", "n=3"]
    assert run(daemon.url, "observe", "step($n)", "--until", str(first)).returncode == 2


@pytest.mark.parametrize(
    "words",
    [["--conflate"], ["--from", "0"], ["--from", "5", "--until", "4"], ["--until", "x"]],
    ids=" ".join,
)
def test_options_that_make_no_sense_are_refused(daemon: DaemonProcess, words: list[str]) -> None:
    assert run(daemon.url, "observe", "step($n)", *words).returncode == 2
