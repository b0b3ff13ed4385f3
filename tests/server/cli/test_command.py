"""The commands do what a user sees, as processes of their own: what they print, when, and how they end.

Output is read line by line while the command runs: a line that is not flushed at once would hang the test.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dataspace
from dataspace import BlockingSpace, Record
from dataspace.version import compiled_parts, described
from tests import warm
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

COMMANDS = ("serve", "assert", "retract", "observe", "send", "log", "status", "index", "owners", "topic")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    process = DaemonProcess(tmp_path_factory.mktemp("daemon") / "data")
    process.start()
    yield process
    assert process.stop() == 0
    assert process.errors == "dataspace: SIGTERM, stopping\n", "the daemon has nothing to say of all this"


@pytest.fixture
def space(daemon: DaemonProcess) -> Iterator[BlockingSpace]:
    """A witness."""
    with dataspace.connect_blocking(daemon.url) as connected:
        yield connected


def _words(url: str, *words: str) -> tuple[list[str], dict[str, str]]:
    return [sys.executable, "-m", "dataspace", *words], os.environ | {"DATASPACE_URL": url}


def run(url: str, *words: str, said: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself, with what it finds on its standard input."""
    return warm.run(*words, said=said, env=os.environ | {"DATASPACE_URL": url} | more)


class Running:
    """A command that is still running; ``with`` ends it with SIGKILL if nothing else did."""

    def __init__(self, url: str, *words: str) -> None:
        command, environment = _words(url, *words)
        self.process = warm.Popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def line(self) -> str:
        assert self.process.stdout is not None  # a pipe, as asked for
        return self.process.stdout.readline()

    def error_line(self) -> str:
        assert self.process.stderr is not None  # a pipe, as asked for
        return self.process.stderr.readline()

    def end(self, number: signal.Signals) -> tuple[int, str, str]:
        """Signals it; its exit code and what it said from then on."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


def held(space: BlockingSpace, pattern: str) -> list[str]:
    return sorted(str(row[0]) for row in space.matches(pattern))


def until_gone(space: BlockingSpace, pattern: str) -> None:
    """Returns when nothing matches: a session is retracted when the daemon has seen it go."""
    count = 0
    with space.observe(pattern, quiet=True) as observation:
        for epoch in observation.epochs():
            count += len(epoch.added) - len(epoch.removed)
            if not count:
                return


# -- assert -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_assert_holds_facts_until_it_is_told_to_stop(
    daemon: DaemonProcess, space: BlockingSpace, number: signal.Signals
) -> None:
    with Running(daemon.url, "assert", 'held("a")', 'held("b")') as command:
        said = command.error_line()
        assert re.fullmatch(r"asserted 2 facts in epoch \d+\n", said)
        assert held(space, "held($what)") == ["a", "b"]
        assert command.end(number) == (0, "", "")
        until_gone(space, "held($what)")


def test_assert_holds_facts_for_a_while(daemon: DaemonProcess, space: BlockingSpace) -> None:
    with space.observe("brief($n)", snapshot=False) as observation:
        done = run(daemon.url, "assert", "brief(1)", "--for", "50ms")
        assert (done.returncode, done.stdout) == (0, "")
        kinds = [change.kind for _, change in zip(range(2), observation, strict=False)]
    assert kinds == ["+", "-"]


def test_assert_holds_facts_while_a_program_runs_and_ends_as_it_does(
    daemon: DaemonProcess, space: BlockingSpace
) -> None:
    program = ["--", sys.executable, "-m", "dataspace", "observe", "busy($n)", "--count", "1", "--quiet"]
    done = run(daemon.url, "assert", "busy(1)", *program)
    assert done.returncode == 0
    assert re.fullmatch(r"\d+ \+ n=1\n", done.stdout), "it saw the fact"
    until_gone(space, "busy($n)")
    assert run(daemon.url, "assert", "busy(2)", "--", "sh", "-c", "exit 7").returncode == 7
    assert run(daemon.url, "assert", "busy(2)", "--", "sh", "-c", "kill -9 $$").returncode == 137
    missing = run(daemon.url, "assert", "busy(2)", "--", "/no/such/program")
    assert missing.returncode == 127
    assert "cannot run /no/such/program: No such file or directory" in missing.stderr
    until_gone(space, "busy($n)")


@pytest.mark.parametrize("owner", ["--grace", "--lease"])
def test_facts_may_outlive_a_command_that_was_killed_for_a_while(
    daemon: DaemonProcess, space: BlockingSpace, owner: str
) -> None:
    with Running(daemon.url, "assert", "lasting(1)", owner, "4s") as command:
        assert command.error_line().startswith("asserted 1 fact in epoch ")
        command.end(signal.SIGKILL)
    assert held(space, "lasting($n)") == ["1"]
    until_gone(space, "lasting($n)")
    with Running(daemon.url, "assert", "longer(1)", owner, "60s") as command:
        assert command.error_line().startswith("asserted 1 fact in epoch ")
        command.end(signal.SIGKILL)
    said = (
        r"1 waiting to come back, \d leases?" if owner == "--grace" else r"\d waiting to come back, 1 lease\b"
    )
    assert re.search(rf"sessions +\d+ with \d+ streams?, {said}", run(daemon.url, "status").stdout)


def test_durable_facts_stay_until_they_are_retracted(daemon: DaemonProcess, space: BlockingSpace) -> None:
    first = run(daemon.url, "assert", "kept(1)", "kept(2)", "--durable", "me")
    assert (first.returncode, first.stdout) == (0, "")
    second = run(daemon.url, "assert", "kept(3)", "--durable", "me")
    assert second.returncode == 0
    assert held(space, "kept($n)") == ["1", "2", "3"]
    assert run(daemon.url, "retract", "kept(2)", "--durable", "me").returncode == 0
    assert held(space, "kept($n)") == ["1", "3"]
    again = run(daemon.url, "assert", "kept(1)", "--durable", "me")
    assert (again.returncode, again.stderr) == (
        1,
        "dataspace: handle-in-use: me has already asserted kept(1)\n",
    )
    gone = run(daemon.url, "retract", "kept(2)", "--durable", "me")
    assert (gone.returncode, gone.stderr) == (
        1,
        "dataspace: unknown-handle: me does not assert kept(2)\n",
    )
    assert run(daemon.url, "retract", "kept(1)", "kept(3)", "--durable", "me").returncode == 0
    assert held(space, "kept($n)") == []


def test_to_retract_the_beginning_of_a_fact_names_the_pattern_of_the_whole(
    daemon: DaemonProcess, space: BlockingSpace
) -> None:
    assert run(daemon.url, "assert", 'kept("a", 1)', 'kept("a", 2, 3)', "--durable", "me").returncode == 0
    gone = run(daemon.url, "retract", 'kept("a")', "--durable", "me")
    assert (gone.returncode, gone.stderr) == (
        1,
        'dataspace: unknown-handle: me does not assert kept("a"); '
        'kept("a", _) matches 2 facts: name it to retract those of me\n',
    )
    assert run(daemon.url, "retract", 'kept("a", _)', "--durable", "me").returncode == 0
    assert held(space, 'kept("a", $n)') == []


# -- observe ------------------------------------------------------------------------------------------


def test_observe_prints_each_change_at_once_as_text(daemon: DaemonProcess, space: BlockingSpace) -> None:
    with Running(daemon.url, "observe", "seen($who, $)") as command:
        until_observed(space, "Observe(seen(_, _))")
        claim = space.assert_(Record("seen", "Alice", 1))
        line = command.line()
        assert line == f'{line.split()[0]} + who="Alice" 1\n'
        epoch = space.send(Record("seen", "Bob", None))
        assert command.line() == f'{epoch} ! who="Bob" null\n'
        epoch = space.retract(claim)
        assert command.line() == f'{epoch} - who="Alice" 1\n'
        assert command.end(signal.SIGINT) == (0, "", "")


def until_observed(space: BlockingSpace, pattern: str) -> None:
    """Returns when somebody observes what matches."""
    with space.observe(pattern, quiet=True) as interests:
        next(iter(interests))


def test_observe_prints_each_change_at_once_as_json(daemon: DaemonProcess, space: BlockingSpace) -> None:
    claim = space.assert_(Record("seen", "Alice", (1, 2.5)))
    with Running(daemon.url, "observe", "seen($who, $)", "--json") as command:
        first = json.loads(command.line())
        assert list(first) == ["epoch", "time", "change", "captures"]
        assert (first["change"], first["captures"]) == ("+", {"who": "Alice", "1": [1, 2.5]})
        assert TIME.fullmatch(first["time"])
        epoch = space.send(Record("seen", "Bob", True))
        line = command.line()
        start = f'{{"epoch": {epoch}, "time": "{json.loads(line)["time"]}", '
        assert line == start + '"change": "!", "captures": {"who": "Bob", "1": true}}\n'
        space.retract(claim)
        assert json.loads(command.line())["change"] == "-"
        assert command.end(signal.SIGTERM) == (0, "", "")


def test_observe_can_leave_out_the_state_its_interest_and_the_rest(
    daemon: DaemonProcess, space: BlockingSpace
) -> None:
    space.assert_(Record("option", 1))
    with Running(daemon.url, "observe", "option($n)", "--changes-only", "--count", "2") as command:
        until_observed(space, "Observe(option(_))")
        with space.turn() as turn:
            turn.assert_(Record("option", 2))
            turn.assert_(Record("option", 3))
        out, _ = command.process.communicate(timeout=30)
        assert out == f"{turn.epoch} + n=2\n{turn.epoch} + n=3\n"
        assert command.process.returncode == 0
    with Running(daemon.url, "observe", "option($n)", "--quiet") as command:
        assert command.line().endswith("+ n=1\n")
        assert space.matches("Observe(option(_))") == []


def test_observe_with_a_pace_prints_all_and_refuses_one_that_is_none(
    daemon: DaemonProcess, space: BlockingSpace
) -> None:
    space.assert_(Record("paced", 1))
    with Running(daemon.url, "observe", "paced($n)", "--pace", "20ms", "--count", "3") as command:
        until_observed(space, "Observe(paced(_))")
        for n in (2, 3):
            space.assert_(Record("paced", n))
        out, _ = command.process.communicate(timeout=30)
    assert [line[-1] for line in out.splitlines() if not line.startswith("#")] == ["1", "2", "3"]
    done = run(daemon.url, "observe", "paced($n)", "--pace", "2m")
    assert done.returncode == 2 and "pace must be 0 to 60 seconds, got 120.0" in done.stderr


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_facts_hold_cannot_control_the_terminal(
    daemon: DaemonProcess, space: BlockingSpace, form: list[str]
) -> None:
    nasty = "\x1b[2J\x9b2J\r\n\x00\x7f\u202e\u2028 end"
    with space.asserting(Record("nasty", nasty, Record("\x1b]0;x\x07"), {"\x1b": b"\x1b"})):
        done = run(daemon.url, "observe", "nasty($a, $b, $c)", "--count", "1", *form)
    assert done.returncode == 0
    line = done.stdout.removesuffix("\n")
    assert line.isprintable() and line.endswith(("}", ")")), line
    if form:
        assert json.loads(line)["captures"]["a"] == nasty


def test_output_that_the_terminal_cannot_show_is_escaped(daemon: DaemonProcess, space: BlockingSpace) -> None:
    with space.asserting(Record("word", "naïve ☃")):
        for form in ([], ["--json"]):
            done = run(
                daemon.url,
                "observe",
                "word($w)",
                "--count",
                "1",
                *form,
                PYTHONIOENCODING="ascii",
                PYTHONUTF8="0",
            )
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
            assert done.stdout.isascii() and "\\" in done.stdout


def test_a_reader_that_has_seen_enough_ends_the_command(daemon: DaemonProcess, space: BlockingSpace) -> None:
    with space.turn() as turn:
        for n in range(16_000):
            turn.assert_(Record("many", n))
    for words in (["observe", "many($n)"], ["log", "many($n)", "--json"]):
        with Running(daemon.url, *words) as command:
            assert command.line()
            assert command.process.stdout is not None  # a pipe, as asked for
            command.process.stdout.close()
            assert command.error_line() == ""
            assert command.process.wait(timeout=30) == 0


# -- send, log, status --------------------------------------------------------------------------------


def test_send_sends_all_its_messages_in_one_turn(daemon: DaemonProcess, space: BlockingSpace) -> None:
    with space.observe("said($n)", snapshot=False) as observation:
        done = run(daemon.url, "send", "said(1)", "said(2)")
        epoch = observation.next_epoch(30)
    assert epoch is not None and [*epoch.messages] == [(1,), (2,)]
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"sent 2 messages in epoch {epoch.number}\n"


def test_more_lines_than_one_turn_holds_are_several_turns(
    daemon: DaemonProcess, space: BlockingSpace
) -> None:
    deep = "[" * 52 + "1" + "]" * 52
    facts = "".join(f'row({n}, "{"x" * 1_000_000}")\n' for n in range(6)) + f"row({deep})\n"
    done = run(daemon.url, "assert", "--durable", "rows", "-", said=facts)
    assert re.fullmatch(r"asserted 7 facts in \d+ turns, epochs \d+ to \d+\n", done.stderr), done.stderr
    assert len(held(space, "row($n)")) == 7
    done = run(daemon.url, "retract", "--durable", "rows", "-", said=facts)
    assert re.fullmatch(r"retracted 7 facts in \d+ turns, epochs \d+ to \d+\n", done.stderr), done.stderr
    assert held(space, "row($n)") == []


def test_facts_may_be_lines_of_the_standard_input(daemon: DaemonProcess, space: BlockingSpace) -> None:
    facts = '# people\npresent("Ann")\n\n  present("Ben")\n'
    done = run(daemon.url, "assert", "--durable", "lines", 'present("Cy")', "-", said=facts)
    assert done.stderr.startswith("asserted 3 facts in epoch ")
    assert held(space, "present($who)") == ["Ann", "Ben", "Cy"]
    bad = run(daemon.url, "retract", "--durable", "lines", "-", said=facts + "present(\n")
    assert bad.returncode == 2 and "line 5 of the standard input: expected" in bad.stderr
    assert held(space, "present($who)") == ["Ann", "Ben", "Cy"], "all or nothing"
    run(daemon.url, "retract", "--durable", "lines", 'present("Cy")', "-", said=facts)
    assert held(space, "present($who)") == []


def test_messages_of_the_standard_input_are_sent_as_they_come(
    daemon: DaemonProcess, space: BlockingSpace
) -> None:
    command, environment = _words(daemon.url, "send", "-")
    with (
        space.observe("said($n)", snapshot=False) as observation,
        warm.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stderr=subprocess.PIPE
        ) as sending,
    ):
        assert sending.stdin is not None and sending.stderr is not None  # pipes, as asked for
        for n in (1, 2):
            sending.stdin.write(f"said({n})\n")
            sending.stdin.flush()
            epoch = observation.next_epoch(30)
            assert epoch is not None and [*epoch.messages] == [(n,)]
        sending.stdin.write("said(3)\nwhat?\nsaid(4)\n")
        sending.stdin.close()
        last = observation.next_epoch(30)
        assert last is not None and [*last.messages] == [(3,)]
        errors = sending.stderr.read()
    assert errors.startswith(f"sent 3 messages, the last in epoch {last.number}\n"), errors
    assert "dataspace: line 4 of the standard input: " in errors and sending.returncode == 2


def test_log_prints_the_past(daemon: DaemonProcess, space: BlockingSpace) -> None:
    claim = space.assert_(Record("past", 1))
    with space.turn() as turn:
        turn.replace(claim, Record("past", 2))
        turn.send(Record("past", 3))
    second = turn.epoch
    assert second is not None
    third = space.send(Record("past", 4))
    lines = [f"{second - 1} + n=1", f"{second} + n=2", f"{second} ! n=3", f"{second} - n=1", f"{third} ! n=4"]

    def log(*words: str) -> list[str]:
        done = run(daemon.url, "log", *words)
        assert done.returncode == 0
        assert not done.stderr or "the newest is" in done.stderr
        return done.stdout.splitlines()

    assert log("past($n)") == lines
    assert log("past($n)", "--from", str(second)) == lines[1:]
    assert log("past($n)", "--from", "0", "--until", str(second)) == lines[:4]
    assert log("past($n)", "--from", str(second), "--until", str(second)) == lines[1:4]
    assert log("past($n)", "--from", str(third + 1000)) == []
    assert log("past($n)", "--until", str(third + 1000)) == lines, "without --follow nothing is waited for"
    assert log("past($n)", "--count", "2") == lines[:2]
    assert lines[1].replace("n=2", "past(2)") in log()
    found = [json.loads(line) for line in log("past($n)", "--json", "--from", str(second))]
    assert [(each["epoch"], each["change"], each["captures"]) for each in found] == [
        (second, "+", {"n": 2}),
        (second, "!", {"n": 3}),
        (second, "-", {"n": 1}),
        (third, "!", {"n": 4}),
    ]
    assert all(list(each) == ["epoch", "time", "change", "captures"] for each in found)


def test_log_follows(daemon: DaemonProcess, space: BlockingSpace) -> None:
    first = space.send(Record("followed", 1))
    with Running(daemon.url, "log", "followed($n)", "--follow") as command:
        assert command.line() == f"{first} ! n=1\n"
        for n in (2, 3):
            epoch = space.send(Record("followed", n))
            assert command.line() == f"{epoch} ! n={n}\n"
        assert command.end(signal.SIGINT) == (0, "", "")
    last = space.send(Record("followed", 4))
    with Running(
        daemon.url, "log", "followed($n)", "--from", str(last), "--until", str(last + 2), "--follow"
    ) as command:
        assert command.line() == f"{last} ! n=4\n"
        space.send(Record("other", 1))
        space.send(Record("other", 2))
        assert command.process.wait(timeout=30) == 0


def test_status_tells_how_the_daemon_is(daemon: DaemonProcess, space: BlockingSpace) -> None:
    space.assert_(Record("one", 1))
    done = run(daemon.url, "status")
    assert (done.returncode, done.stderr) == (0, "")
    told = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert told["version"] == described(dataspace.__version__, compiled_parts())
    assert told["address"] == f"tcp:127.0.0.1:{daemon.port}"
    assert told["process"].startswith(f"{daemon.process.pid}, up ")
    assert {"epoch", "sessions", "facts", "memory", "disk"} <= told.keys()
    line = run(daemon.url, "status", "--json").stdout
    assert line.count("\n") == 1
    figures = json.loads(line)
    assert figures["process"] == daemon.process.pid
    assert figures["addresses"] == [f"tcp:127.0.0.1:{daemon.port}"]
    assert figures["sessions"] >= 2 and figures["facts"] >= 1
    assert figures["memory_peak_bytes"] >= figures["memory_bytes"]
    assert figures["memory_bytes"] > 1 << 20 and figures["disk_bytes"] > 0


def test_owners_shows_who_claims_what(daemon: DaemonProcess, space: BlockingSpace) -> None:
    space.assert_(Record("owned", 1))
    assert run(daemon.url, "assert", "owned(2)", "--durable", "board").returncode == 0
    done = run(daemon.url, "owners", "owned(_)")
    assert (done.returncode, done.stderr) == (0, "")
    session, board = sorted(done.stdout.splitlines())
    assert session.startswith("owned(1)  session:")
    assert board == "owned(2)  durable:board"
    line = json.loads(run(daemon.url, "owners", "owned(2)", "--json").stdout)
    assert (line["owner"], line["bearer"], line["stamp"]) == ("durable:board", "", {})
    refused = run(daemon.url, "owners", "owned(_)", "--most", "0")
    assert refused.returncode == 1 and "most must be a number from 1 to 10000, got 0" in refused.stderr


def test_log_with_who_shows_who_changed_what(daemon: DaemonProcess, space: BlockingSpace) -> None:
    space.assert_(Record("changed", 1))
    assert run(daemon.url, "assert", "changed(2)", "--durable", "board").returncode == 0
    done = run(daemon.url, "log", "changed($n)", "--who")
    assert (done.returncode, done.stderr) == (0, "")
    session, board = done.stdout.splitlines()
    assert " + n=1  owner=session:" in session
    assert " + n=2  owner=durable:board  client=~" in board
    assert "  principal=address:127.0.0.1  address=127.0.0.1:" in board
    (line,) = run(daemon.url, "log", "changed($n)", "--who", "--json", "--count", "1").stdout.splitlines()
    told = json.loads(line)
    assert (told["change"], told["captures"], told["principal"]) == ("+", {"n": 1}, "address:127.0.0.1")
    refused = run(daemon.url, "log", "changed($n)", "--who", "--follow")
    assert refused.returncode == 2 and "--who reads the past and cannot --follow" in refused.stderr


def test_index_draws_who_is_interested_in_what(daemon: DaemonProcess, space: BlockingSpace) -> None:
    space.assert_(Record("drawn", "here", 1))
    with space.observe('drawn("here", $n)', quiet=True):
        done = run(daemon.url, "index")
        assert (done.returncode, done.stderr) == (0, "")
        assert "(0, []) drawn: 1 value\n" in done.stdout
        assert '"here": 1 value, captures [1] (1 row) → 1 callback\n' in done.stdout
        assert run(daemon.url, "index", "--form", "dot").stdout.startswith("digraph index {\n")
        assert run(daemon.url, "index", "--form", "mermaid", "--most", "1").stdout.startswith(
            "flowchart LR\n"
        )
    refused = run(daemon.url, "index", "--most", "0")
    assert refused.returncode == 1 and "most must be a number from 1 to 1000, got 0" in refused.stderr


# -- what is wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["assert", "a(1)"],
        ["retract", "a(1)", "--durable", "me"],
        ["observe", "a($)"],
        ["send", "a(1)"],
        ["log"],
        ["status"],
    ],
)
def test_without_a_daemon_every_command_says_how_to_start_one(words: list[str]) -> None:
    done = run("tcp://127.0.0.1:1", *words)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "dataspace: no daemon at tcp://127.0.0.1:1 (connection refused); "
        "start one with: dataspace serve --listen tcp:127.0.0.1:1\n"
    )


WRONG = {
    "bad text": (["assert", 'a("'], 'a("\n'),
    "two facts in one": (["send", "a(1) b(2)"], "a(1) b(2)\n"),
    "a bad pattern": (["observe", "a($x:colour)"], "a($x:colour)\n"),
    "bad text for the log": (["log", "a(]"], "a(]\n"),
    "bad text to retract": (["retract", "a(", "--durable", "me"], "a(\n"),
}


@pytest.mark.parametrize("what", WRONG)
def test_bad_text_is_shown_with_the_place(daemon: DaemonProcess, what: str) -> None:
    words, shown = WRONG[what]
    done = run(daemon.url, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dataspace: ") and shown in done.stderr
    assert re.fullmatch(r" *\^", done.stderr.splitlines()[-1]), done.stderr


MISTAKES = {
    "a bad duration": (["assert", "a(1)", "--for", "soon"], "'soon' is no duration, write for example 10s"),
    "a bad address": (["status", "--url", "http://x"], "'http://x' is no address, write tcp://HOST:PORT"),
    "a bad port": (["serve", "--listen", "tcp:127.0.0.1:99999"], "is no address, write tcp:HOST:PORT"),
    "two kinds of owner": (
        ["assert", "a(1)", "--lease", "1s", "--durable", "me"],
        "--durable and --lease exclude each other; facts have one kind of owner",
    ),
    "a lease that is no time": (["assert", "a(1)", "--lease", "long"], "'long' is no duration"),
    "no command": ([], "COMMAND is missing; see dataspace --help"),
    "an unknown command": (["asert"], "'asert' is no command; did you mean assert?"),
    "a program for the wrong command": (["send", "a(1)", "--", "ls"], "send takes no program after --"),
    "two ways to hold": (
        ["assert", "a(1)", "--durable", "me", "--for", "1s"],
        "--durable and --for exclude each other",
    ),
    "two ways to end": (
        ["assert", "a(1)", "--for", "1s", "--", "ls"],
        "--for and a program exclude each other",
    ),
    "no program": (["assert", "a(1)", "--"], "no program after --"),
    "a count that is none": (
        ["observe", "a($)", "--count", "0"],
        "--count: '0' is no count, give 1 or more",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_command_line_that_makes_no_sense_is_said_to(daemon: DaemonProcess, what: str) -> None:
    words, text = MISTAKES[what]
    done = run(daemon.url, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr and "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_said_to_be(daemon: DaemonProcess, tmp_path: Path) -> None:
    done = run(
        daemon.url, "serve", "--listen", f"tcp:127.0.0.1:{daemon.port}", "--data", str(tmp_path / "other")
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"dataspace: cannot listen on tcp:127.0.0.1:{daemon.port}: Address already in use\n"


def test_a_data_directory_that_cannot_be_is_said_to_be(daemon: DaemonProcess, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(daemon.url, "serve", "--listen", "tcp:127.0.0.1:0", "--data", str(tmp_path / "file"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"dataspace: cannot keep data in {tmp_path / 'file'}: File exists\n"


@pytest.mark.parametrize("command", [(), *((each,) for each in COMMANDS)])
def test_every_command_has_help(command: tuple[str, ...]) -> None:
    done = run("", *command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: dataspace {' '.join(command)}".rstrip())


def test_the_help_names_every_command_and_each_of_its_options() -> None:
    shown = run("", "--help").stdout
    assert all(f"    {command} " in shown or f"dataspace {command}" in shown for command in COMMANDS)


def test_the_version_is_told() -> None:
    assert run("", "--version").stdout == f"dataspace {described(dataspace.__version__, compiled_parts())}\n"


def test_a_command_outlives_its_daemon_and_says_what_happens(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    with Running(daemon.url, "assert", "held(1)") as command:
        assert command.error_line() == "asserted 1 fact in epoch 1\n"
        assert daemon.stop() == 0
        lost = "the daemon closed it: the daemon is ending; it may be started again"
        assert command.error_line() == f"dataspace: connection lost: {lost}\n"
        daemon.start()
        back = r"dataspace: connection back after \d+\.\d s as a new session, 1 fact was asserted anew\n"
        assert re.fullmatch(back, command.error_line())
        with dataspace.connect_blocking(daemon.url) as space:
            while held(space, "held($n)") != ["1"]:
                pass  # it is on its way
        assert command.end(signal.SIGINT)[0] == 0
    assert daemon.stop() == 0
