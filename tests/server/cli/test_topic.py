"""The commands about topics do what a user sees, as processes of their own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import dataspace
from dataspace import BlockingSpace, Record
from server.cli.main import main
from tests import warm
from tests.server.cli.test_command import Running, _words, run
from tests.server.processes import DaemonProcess

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
        self.process = warm.Popen(
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
            wanted = "seen 2 partitions, 0 dimensions, 1 publication, 1 subscription"
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


# -- durable ones -------------------------------------------------------------------------------------


def _publish(daemon: DaemonProcess, *words: str, said: str = "") -> None:
    done = run(daemon.url, "topic", "publish", *words, said=said)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_durable_topic_has_completed_is_read_by_number_and_ends_when_told(
    daemon: DaemonProcess,
) -> None:
    _publish(daemon, "lasting", "--durable", said="a(1)\n# a comment\n\na(2)\na(3)\n")
    assert run(daemon.url, "topic", "read", "lasting").stdout == "0 a(1)\n1 a(2)\n2 a(3)\n"
    some = run(daemon.url, "topic", "read", "lasting", "--after", "1", "--until", "2", "--json").stdout
    assert json.loads(some) == {"number": 2, "time": 1, "items": [{"@": "a", "fields": [2]}]}
    assert run(daemon.url, "topic", "read", "lasting", "--after", "3").stdout == ""
    _publish(daemon, "lasting", "a(4)", "a(5)", "--durable")
    again = run(daemon.url, "topic", "subscribe", "lasting", "--from", "2", "--until", "4", "--progress")
    lines = again.stdout.splitlines()
    assert [line for line in lines if line[0] != "#"] == ["2 a(3)", "3 a(4)", "3 a(5)"]
    assert lines[0] == "# frontier 2" and lines[-1] == "# frontier 4"
    ended = run(daemon.url, "topic", "end", "lasting")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert "no topic named 'lasting'" in run(daemon.url, "topic", "read", "lasting").stderr


def test_times_that_are_tuples_and_a_crash_as_json(daemon: DaemonProcess) -> None:
    shape = ("--durable", "--dimensions", "2", "--times", "--time", "[1, 0]")
    with Publishing(daemon.url, "torn", *shape) as told:
        wait_for(daemon.url, 'publication("torn")')
        with Running(daemon.url, "topic", "subscribe", "torn", "--from", "[1, 0]", "--json") as seen:
            told.say('[1, 2] "whole"')
            told.say('[2, 2] "torn"')
            assert json.loads(seen.line()) == {"time": [1, 2], "items": ["whole"]}
            told.process.send_signal(signal.SIGKILL)
            crash = json.loads(seen.line())
            assert (crash["partition"], crash["since"]) == (0, [[2, 2]])
    read = run(daemon.url, "topic", "read", "torn", "--until", "1", "--json")
    assert json.loads(read.stdout) == {"number": 1, "time": [1, 2], "items": ["whole"]}
    listed = map(json.loads, run(daemon.url, "topic", "list", "--json").stdout.splitlines())
    assert {
        "topic": "torn",
        "partitions": 1,
        "dimensions": 2,
        "publications": 0,
        "subscriptions": 0,
    } in listed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["read", "kept-topic", "--until", "9"], "epoch-ahead: epoch 9 is still to come, the newest is 2"),
        (["read", "kept-topic", "--after", "9"], "epoch-ahead: epoch 9 is still to come, the newest is 2"),
        (["read", "kept-topic", "--after", "-3"], "bad-request: after must be a number from -1 to 2^63-1"),
        (["read", "nothing"], "no-topic: no topic named 'nothing', there are "),
        (["end", "nothing"], "no-topic: no topic named 'nothing', there are "),
        (
            ["subscribe", "kept-topic", "--from", "99"],
            "epoch-ahead: [99] is yet to come: the frontier is [2]",
        ),
        (["subscribe", "kept-topic", "--partition", "4"], "bad-request: partition 4, there are 0 to 0"),
        (
            ["publish", "kept-topic", "1", "--durable", "--partitions", "3"],
            "topic-differs: 'kept-topic' has 1",
        ),
        (
            ["publish", "kept-topic", "1", "--durable", "--time", "[1, 2]"],
            "bad-request: a time of this topic is an",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_had_is_refused_with_what_can(
    daemon: DaemonProcess, words: list[str], said: str
) -> None:
    if run(daemon.url, "topic", "read", "kept-topic").returncode:
        _publish(daemon, "kept-topic", "--durable", said="1\n2\n")
    done = run(daemon.url, "topic", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"dataspace: {said}")


@pytest.mark.parametrize(
    ("words", "lines", "said"),
    [
        (
            ["--times"],
            "5 b(1)\n3 b(2)\n",
            "line 2 of the standard input: a capability for 5 cannot be downgraded to 3",
        ),
        (["--times"], "hello\n", "line 1 of the standard input: a line begins with its time"),
        ([], "1\n\nb(1\n", "line 3 of the standard input: expected ',' or ')'"),
        (["--keep-for", "5s"], "", "--keep-for needs --durable"),
        (["--retain", "5XB"], "", "'5XB' is no size"),
        (["--away", "5s"], "", "only a publication to a durable topic has a name and may be away"),
        (["--time", "x"], "", "a bare word is no value"),
    ],
)
def test_a_publication_that_makes_no_sense_says_where(
    daemon: DaemonProcess, words: list[str], lines: str, said: str
) -> None:
    done = run(daemon.url, "topic", "publish", "senseless", *words, said=lines)
    assert done.returncode == 2 and done.stderr.startswith(f"dataspace: {said}")


# -- epochs that are out of reach ---------------------------------------------------------------------


def test_epochs_out_of_reach_are_named(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    with dataspace.connect_blocking(daemon.url) as connected:
        for n in range(5):
            connected.send(Record("said", n))
        last = connected.sync()
    daemon.stop()
    assert main(["log", "compact", "--data", str(daemon.data), "--keep-for", "0s"]) == 0
    daemon.start()
    gone = run(daemon.url, "observe", "said($n)", "--from", "1")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert re.fullmatch(
        r"dataspace: epoch-gone: epochs after 0 are wanted, the oldest held is \d+\n", gone.stderr
    )
    ahead = run(daemon.url, "observe", "said($n)", "--from", "999999999")
    assert (ahead.returncode, ahead.stdout) == (1, "")
    assert re.fullmatch(
        r"dataspace: epoch-ahead: epochs after 999999998 are wanted, the newest is \d+\n", ahead.stderr
    )
    past = run(daemon.url, "observe", "said($n)", "--until", str(last))
    assert (past.returncode, past.stdout) == (2, "")
    assert f"epoch {last} is past" in past.stderr
    assert daemon.stop() == 0
