"""Looking once, taking back by pattern, and a command for each change, as a user at a shell sees them."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

import dataspace
from dataspace import BlockingSpace, Record
from server.cli.main import main
from tests import warm
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    process = DaemonProcess(tmp_path_factory.mktemp("daemon") / "data")
    process.start()
    with dataspace.connect_blocking(process.url) as space:
        with space.turn() as turn:
            turn.assert_(Record("at", "Alice", 1, (1, 2.5)))
            turn.assert_(Record("at", 'B"ob', 22, Record("on", "x,y")))
        yield process
    assert process.stop() == 0


@pytest.fixture(autouse=True)
def at_it(daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATASPACE_URL", daemon.url)


@pytest.fixture
def space(daemon: DaemonProcess) -> Iterator[BlockingSpace]:
    with dataspace.connect_blocking(daemon.url) as connected:
        yield connected


def printed(capfd: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    """What a command prints, in this process."""
    assert main(list(words)) == code
    return capfd.readouterr()


# -- get ----------------------------------------------------------------------------------------------


def test_get_prints_the_captures_of_each_match_and_ends(capfd: pytest.CaptureFixture[str]) -> None:
    out, err = printed(capfd, "get", "at($who, $n, $)")
    assert sorted(out.splitlines()) == ['who="Alice" n=1 [1, 2.5]', 'who="B\\"ob" n=22 on("x,y")']
    assert re.fullmatch(r"2 rows at epoch \d+\n", err)


def test_get_prints_the_facts_that_a_pattern_without_captures_matches(
    capfd: pytest.CaptureFixture[str],
) -> None:
    out, err = printed(capfd, "get", "at(_, 1, _)")
    assert out == 'at("Alice", 1, [1, 2.5])\n'
    assert re.fullmatch(r"1 fact at epoch \d+\n", err)
    out, err = printed(capfd, "get", "none(_)")
    assert (out, err[:7]) == ("", "0 facts")


def test_get_has_rows_as_json(capfd: pytest.CaptureFixture[str], space: BlockingSpace) -> None:
    out, _ = printed(capfd, "get", "at($who, 1, $)", "--json")
    assert json.loads(out) == {"epoch": space.sync(), "captures": {"who": "Alice", "1": [1, 2.5]}}


def test_get_has_rows_as_comma_separated_values(capfd: pytest.CaptureFixture[str]) -> None:
    out, _ = printed(capfd, "get", "at($who, $n, $where)", "--csv")
    header, *rows = csv.reader(io.StringIO(out))
    assert header == ["who", "n", "where"]
    assert sorted(rows) == [["Alice", "1", "[1, 2.5]"], ['B"ob', "22", 'on("x,y")']]


def test_get_has_rows_as_a_table(capfd: pytest.CaptureFixture[str]) -> None:
    out, _ = printed(capfd, "get", "at($who, $n, _)", "--table")
    header, line, *rows = out.splitlines()
    assert (header, line) == ("who     n", "-----  --")
    assert sorted(rows) == ["Alice   1", 'B"ob   22']


@pytest.mark.parametrize("form", ["--json", "--table", "--csv", None])
def test_what_get_prints_on_a_terminal_does_not_control_it(
    daemon: DaemonProcess, space: BlockingSpace, form: str | None
) -> None:
    with space.asserting(Record("nasty", "\x1b[2Jend")):
        words = [sys.executable, "-m", "dataspace", "get", "nasty($x)", *([form] if form else [])]
        out = on_a_terminal(words)
    assert "end" in out
    assert "\x1b" not in out


def test_get_refuses_what_is_no_pattern_and_two_forms_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    out, err = printed(capfd, "get", "at($who", code=2)
    assert out == ""
    assert "expected ',' or ')'" in err
    with pytest.raises(SystemExit):
        main(["get", "at($who)", "--json", "--csv"])
    assert "--csv: not allowed with --json" in capfd.readouterr().err


@pytest.mark.parametrize("is_first", [False, True], ids=["facts first", "observer first"])
def test_a_repeated_name_inside_a_part_ends_nothing_at_facts_that_are_too_short(
    is_first: bool, space: BlockingSpace, capfd: pytest.CaptureFixture[str]
) -> None:
    label = f"short{is_first:d}"
    pattern = f"{label}(q($x), $x)"
    short = [("assert", "--durable", owner, f"{label}(q(), {n})") for n, owner in enumerate("AB")]
    space.assert_(Record(label, Record("q", 7), 7))
    for words in () if is_first else short[:1]:
        printed(capfd, *words)
    command = [sys.executable, "-m", "dataspace", "observe", pattern]
    with warm.Popen(command, stdout=subprocess.PIPE, text=True) as observer:
        assert observer.stdout is not None  # a pipe, as asked for
        assert "x=7" in observer.stdout.readline()
        for words in short if is_first else short[1:]:
            printed(capfd, *words)
        space.send(Record(label, Record("q"), 3))
        space.assert_(Record(label, Record("q", 8), 8))
        assert "x=8" in observer.stdout.readline()
        observer.terminate()
    out, _ = printed(capfd, "get", pattern)
    assert sorted(out.splitlines()) == ["x=7", "x=8"]
    out, _ = printed(capfd, "get", f"{label}(q(), _)")
    assert f"{label}(q(), 0)" in out and f"{label}(q(), 1)" in out


# -- retract ------------------------------------------------------------------------------------------


def test_retract_takes_facts_and_patterns_of_one_owner(
    capfd: pytest.CaptureFixture[str], space: BlockingSpace
) -> None:
    with space.asserting(Record("job", 3, "done")):
        printed(
            capfd, "assert", "--durable", "me", 'job(1, "done")', 'job(2, "done")', 'job(3, "open")', "x()"
        )
        out, err = printed(capfd, "retract", "--durable", "me", 'job($, "done")', "x()")
        assert out == ""
        assert re.fullmatch(r"retracted 3 facts in 2 turns, epochs \d+ to \d+\n", err)
        assert sorted(space.matches("job($n, $s)")) == [(3, "done"), (3, "open")]
        _, err = printed(capfd, "retract", "--durable", "me", 'job(_, "done")')
        assert err == "retracted 0 facts: me asserts nothing that matches\n"
        _, err = printed(capfd, "retract", "--durable", "me", "job(_, _)")
        assert re.fullmatch(r"retracted 1 fact in epoch \d+\n", err)


def test_retract_takes_facts_and_patterns_of_a_lease(
    capfd: pytest.CaptureFixture[str], daemon: DaemonProcess, space: BlockingSpace
) -> None:
    with dataspace.connect_blocking(daemon.url, name="w", lease=60.0) as leased:
        for fact in (Record("held", 1), Record("held", 1, 2), Record("held", 2)):
            leased.assert_(fact)
        out, _ = printed(capfd, "owners", "held(_)")
        lease = re.findall(r"lease:60000:w-\w+", out)[0]
        printed(capfd, "retract", "held(1)", "--lease", lease)
        assert len(space.matches("held(1)")) == 1, "a fact is that fact alone"
        _, err = printed(capfd, "retract", "held(_)", "--lease", lease)
        assert re.fullmatch(r"retracted 2 facts in epoch \d+\n", err)
        assert space.matches("held(_)") == []
    _, err = printed(capfd, "retract", "held(_)", "--lease", lease, code=1)
    assert "no-lease" in err
    _, err = printed(capfd, "retract", "held(_)", "--lease", "w", code=2)
    assert "'w' is no lease: give it as `dataspace owners` shows it" in err


# -- observe ------------------------------------------------------------------------------------------


def test_observe_runs_a_command_for_each_change_one_at_a_time(
    capfd: pytest.CaptureFixture[str], space: BlockingSpace
) -> None:
    program = (
        'printf "%s %s %s %s " $DATASPACE_CHANGE $DATASPACE_CAPTURE_n "$DATASPACE_CAPTURE_s" '
        '"$DATASPACE_EPOCH"; cat; test $DATASPACE_CAPTURE_n != 2'
    )
    with space.turn() as turn:
        for number in (1, 2, 3):
            turn.assert_(Record("run", number, f"it's {number}"))
    out, err = printed(capfd, "observe", "run($n, $s)", "--exec", program, "--count", "3", "--quiet")
    lines = [line.split(" {", 1) for line in out.splitlines()]
    assert [begun for begun, _ in lines] == [f"+ {n} it's {n} {turn.epoch}" for n in (1, 2, 3)]
    told = json.loads("{" + lines[2][1])
    assert (told["change"], told["captures"]) == ("+", {"n": 3, "s": "it's 3"})
    assert f"ended with 1 for + in epoch {turn.epoch}" in err


def test_values_that_no_environment_holds_are_on_the_standard_input(
    capfd: pytest.CaptureFixture[str], space: BlockingSpace
) -> None:
    with space.asserting(Record("odd", "a\0b", "x" * 70_000)):
        program = 'echo "$DATASPACE_CAPTURE_a"; echo "${DATASPACE_CAPTURE_b-none}"; wc -c'
        out, _ = printed(capfd, "observe", "odd($a, $b)", "--exec", program, "--count", "1", "--quiet")
    first, second, size = out.split()
    assert (first, second) == ('"a\\u0000b"', "none")
    assert int(size) > 70_000


# -- on a terminal ------------------------------------------------------------------------------------


def on_a_terminal(words: list[str]) -> str:
    """What a command that ends by itself prints on a terminal, which has both of its outputs."""
    master, slave = pty.openpty()
    with warm.Popen(words, stdout=slave, stderr=slave, stdin=subprocess.DEVNULL) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                part = os.read(master, 65_536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not part:
                break
            seen += part
        assert process.wait(30) == 0
    os.close(master)
    return seen.decode()


def test_on_a_terminal_a_command_says_what_it_does(space: BlockingSpace) -> None:
    with space.asserting(Record("here", "Alice")):
        program = [sys.executable, "-m", "dataspace"]
        out = on_a_terminal([*program, "observe", "here($who)", "--count", "1"])
        assert out.splitlines()[0] == "observing here($who): 1 now, Ctrl-C ends"
        assert out.splitlines()[1].endswith('+ who="Alice"')
        out = on_a_terminal([*program, "assert", "here(1)", "--for", "10ms"])
        assert out.splitlines()[-1] == "held for 10ms, Ctrl-C ends"
