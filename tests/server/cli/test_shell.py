"""A prompt on one connection: each command, what is kept, what an interrupt ends, and how scripts fail."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import dataspace
import server
from dataspace import BlockingSpace, Record
from server.cli.parser import parse
from server.cli.shell.interpreter import NAMES, Interpreter, help_text
from server.cli.shell.line import LentConnection
from server.cli.shell.run import carry_out
from tests import warm
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

PROMPT: Final = "dataspace> "
PAGE: Final = Path(server.__file__).with_name("SHELL.md")
BLOCK: Final = re.compile(r"(<!-- shell -->\n\n```text\n)(.*?)(```\n\n<!-- /shell -->)", re.DOTALL)
PLAYED: Final = (
    'assert task(1, "open") task(2, "open") --owner board',
    'assert working("me", 1)',
    "get task($n, $state)",
    'query task($n, "open"), not working(_, $n)',
    "observe task($n, $state) &",
    'put task(1, "done") --owner board',
    "owners task(2, _)",
    "get task(",
    "gte task(_, _)",
    "unobserve 1",
)


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


@pytest.fixture(scope="module")
def interpreter(daemon: DaemonProcess) -> Iterator[Interpreter]:
    """What is done at a prompt, in this process."""
    args = parse(["shell", "--url", daemon.url])
    with LentConnection(args) as line:
        yield Interpreter(line, args)


def script(daemon: DaemonProcess, *lines: str) -> subprocess.CompletedProcess[str]:
    """What a shell prints that reads these lines from its standard input."""
    return warm.run("shell", "--url", daemon.url, said="\n".join(lines) + "\n")


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, url: str, state: Path) -> None:
        self._ours, theirs = pty.openpty()
        settings = termios.tcgetattr(theirs)
        settings[3] &= ~termios.ECHOCTL
        termios.tcsetattr(theirs, termios.TCSANOW, settings)
        inputrc = state / "inputrc"
        inputrc.write_text(
            "set enable-bracketed-paste off\nset bell-style none\nset echo-control-characters off\n"
        )
        more = {"XDG_STATE_HOME": str(state), "TERM": "dumb", "INPUTRC": str(inputrc), "COLUMNS": "200"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dataspace", "shell", "--url", url],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | more,
            preexec_fn=_own_terminal,  # no threads have begun here
        )
        os.close(theirs)
        self.text = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def until(self, wanted: str) -> str:
        """Returns what is printed to the end of ``wanted``."""
        while wanted not in self.text:
            ready, _, _ = select.select([self._ours], [], [], 60)
            assert ready, f"{wanted!r} does not come after {self.text!r}"
            try:
                more = os.read(self._ours, 65536)
            except OSError:  # the other end is closed
                more = b""
            assert more, f"{wanted!r} does not come in {self.text!r}"
            self.text += more.decode().replace("\r\n", "\n").replace("\r", "")
        end = self.text.index(wanted) + len(wanted)
        found, self.text = self.text[:end], self.text[end:]
        return found

    def write(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """Presses Ctrl-C at the prompt until another prompt comes.

        Python looks at signals only where they interrupt its wait for a key, so one that comes while
        readline handles a key waits for the next.
        """
        while True:
            self.write("\x03")
            ready, _, _ = select.select([self._ours], [], [], 5)
            if ready:
                self.until(PROMPT)
                return

    def enter(self, line: str) -> str:
        """Writes a line; returns what is printed to the next prompt, without that."""
        self.write(line + "\n")
        return self.until(PROMPT).removesuffix(PROMPT)


def _own_terminal() -> None:
    """Makes the terminal that of this process: else Ctrl-C would reach nothing."""
    import fcntl

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_the_page_shows_what_a_shell_prints(tmp_path: Path) -> None:
    fresh = DaemonProcess(tmp_path / "data")
    fresh.start()
    try:
        with Terminal(fresh.url, tmp_path) as terminal:
            greeting = terminal.until(PROMPT)
            shown = "".join([f"{PROMPT}{terminal.enter(line)}" for line in PLAYED])
            terminal.write("exit\n")
            shown += PROMPT + terminal.until("1 fact\n")
            assert terminal.process.wait(30) == 0
    finally:
        fresh.stop()
    made = f"$ dataspace shell\n{greeting.removesuffix(PROMPT)}{shown}".replace(
        fresh.url, "tcp://127.0.0.1:7377"
    )
    page = PAGE.read_text(encoding="utf-8")
    if os.environ.get("REWRITE"):
        PAGE.write_text(BLOCK.sub(lambda found: found[1] + made + found[3], page), encoding="utf-8")
        return
    found = BLOCK.search(page)
    assert found is not None and found[2] == made


def test_facts_last_as_long_as_the_shell_and_an_interrupt_ends_a_command_alone(
    daemon: DaemonProcess, space: BlockingSpace, tmp_path: Path
) -> None:
    with Terminal(daemon.url, tmp_path) as terminal:
        terminal.until(PROMPT)
        assert "until this shell ends" in terminal.enter('assert held("a b", 1)')
        assert space.matches("held($what, _)") == [("a b",)]
        terminal.write("observe held($what, _)\n")
        terminal.until('+ what="a b"')
        terminal.write("\x03")
        terminal.until(PROMPT)
        terminal.write("get half")
        terminal.until("get half")
        terminal.interrupt()  # at the prompt it ends the line
        assert "1 row at epoch" in terminal.enter("get held($what, $)")
        terminal.enter("observe more($n) &")
        with space.asserting(Record("more", 7)):
            space.sync()
            while "n=7" not in (said := terminal.enter("get held(_, _)")):
                assert "held" in said
        terminal.write("\x04")
        terminal.until("the shell ends, and with it 1 fact")
        assert terminal.process.wait(30) == 0
    with space.observe("held(_, _)", quiet=True) as seen:
        held = 0
        for epoch in seen.epochs():
            held += len(epoch.added) - len(epoch.removed)
            if not held:
                break


def test_tab_completes_commands_options_and_labels_and_history_is_kept(
    daemon: DaemonProcess, space: BlockingSpace, tmp_path: Path
) -> None:
    space.assert_(Record("remarkable", 1))
    with Terminal(daemon.url, tmp_path) as terminal:
        terminal.until(PROMPT)
        terminal.write("stat\t")
        terminal.until("status ")
        terminal.write("\x15get rema\t")
        terminal.until("get remarkable(")
        terminal.write("_) --cs\t")
        terminal.until("--csv ")
        assert "remarkable(1)" in terminal.enter("")
        terminal.write("\x04")
        assert terminal.process.wait(30) == 0
    history = tmp_path / "dataspace-shell" / "history"
    assert history.read_text().splitlines()[-1].startswith("get remarkable(_) --csv")
    assert history.stat().st_mode & 0o077 == 0
    with Terminal(daemon.url, tmp_path) as terminal:
        terminal.until(PROMPT)
        terminal.write("\x10")  # the line before
        terminal.until("get remarkable(_) --csv")
        assert "remarkable(1)" in terminal.enter("")


def test_a_script_has_no_prompt_and_ends_at_the_first_error(daemon: DaemonProcess) -> None:
    done = script(
        daemon, "# a comment", "", 'assert here("x")', "get here($n) --json", "help nothing", "get here($n)"
    )
    assert done.returncode == 1
    assert re.fullmatch(r'\{"epoch": \d+, "captures": \{"n": "x"\}\}\n', done.stdout)
    assert done.stderr.splitlines()[-2:] == [
        "dataspace: 'nothing' is no command; help shows what there is",
        "dataspace: line 5 failed, and the rest is not carried out: help nothing",
    ]
    done = script(daemon, "get here($n)", "exit", "get (")
    assert (done.returncode, done.stdout.splitlines()[:1]) == (0, ["n"]), done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("gte a(_)", "'gte' is no command; did you mean get?"),
        ("serve", "serve is a command of its own: dataspace serve; help shows what there is here"),
        ("get a(_) --url tcp://x:1", "--url: this shell is connected; start another one for it"),
        ("assert a(1) --lease 5s", "--lease: assert takes --owner NAME, or lasts as long as the shell"),
        ("assert a(1) --for 5s", "--for: assert takes --owner NAME, or lasts as long as the shell"),
        ("retract a(1)", "this shell asserts nothing that a(1) matches; of a durable owner?"),
        ("unobserve 7", "7: no such observation in the background; there is none"),
        (
            "get a(_) &",
            "get does not go on in the background; observe, consume, log read, topic subscribe do",
        ),
        ("put - --owner me", "put - reads the standard input, which the shell does"),
        ("topic publish t", "topic publish without values reads the standard input, which the shell does"),
        ("log verify", "log verify is a command of its own: dataspace log verify"),
        ("rule lst", "did you mean list?"),
        ("get a(_) --tls-key x", "--tls-key: this shell is connected; start another one for it"),
        ("put a(1, 2)", "is missing"),
        ("get a(_) --jsn", "unrecognized arguments: --jsn"),
        ("send -", "send - reads the standard input, which the shell does"),
        ("query a($x), $y > 1", "$y"),
        ("why", "is missing"),
        ("log a(_) --from 900000", ""),
    ],
)
def test_mistakes_are_answered_in_a_line(
    interpreter: Interpreter, capfd: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    code = carry_out(interpreter, line)
    out, err = capfd.readouterr()
    assert (bool(code), out) == (bool(said), "") and said in err, err


def test_help_names_each_command_and_has_the_options_of_each(
    interpreter: Interpreter, capfd: pytest.CaptureFixture[str]
) -> None:
    assert {*NAMES} <= {*re.findall(r"[\w-]+", help_text())}
    for name in NAMES:
        assert carry_out(interpreter, f"help {name}") == 0
        assert name in capfd.readouterr().out


def test_facts_of_the_shell_are_retracted_by_pattern_or_as_they_are(
    interpreter: Interpreter, space: BlockingSpace, capfd: pytest.CaptureFixture[str]
) -> None:
    for line in ("assert mine(1) mine(1, 2) mine(3)", "retract mine(1)"):
        assert carry_out(interpreter, line) == 0
    assert sorted(space.matches("mine($n)")) == [(1,), (3,)]
    assert carry_out(interpreter, "retract mine(_)") == 0
    assert space.matches("mine($n)") == []
    capfd.readouterr()


def test_a_fact_that_a_rule_or_an_assertion_adds_is_retracted_as_any_of_the_shell(
    interpreter: Interpreter, space: BlockingSpace, capfd: pytest.CaptureFixture[str]
) -> None:
    assert carry_out(interpreter, "rule add seen 'seen($n) <- shown($n).'") == 0
    assert carry_out(interpreter, "assert shown(1)") == 0
    assert "added rule seen, until this shell ends" in capfd.readouterr().err
    assert space.matches("seen($n)") == [(1,)]
    assert carry_out(interpreter, "retract rule(_, _) shown(1)") == 0
    assert space.matches("seen($n)") == []
    capfd.readouterr()


def test_a_rule_of_a_durable_owner_stays_when_the_shell_ends(
    daemon: DaemonProcess, space: BlockingSpace
) -> None:
    done = script(daemon, "rule add kept 'kept($n) <- keeping($n).' --durable board")
    assert (done.returncode, done.stderr) == (0, "added rule kept\n")
    assert ("kept",) in space.matches("rule($name, _)")
    assert script(daemon, "rule remove kept --durable board").returncode == 0
    assert ("kept",) not in space.matches("rule($name, _)")


def test_what_follows_runs_in_the_background_with_any_of_its_options(daemon: DaemonProcess) -> None:
    done = script(
        daemon,
        "observe bg($n) --json --count 2 &",
        "observe bg($n) --changes-only &",
        "log bg($n) --follow --json &",
        "topic subscribe bg &",
        "assert bg(1)",
        "assert bg(2)",
        "unobserve 3",
        "unobserve",
    )
    assert done.returncode == 0, done.stderr
    first = [line for line in done.stdout.splitlines() if line.startswith("[1]")]
    assert [re.sub(r'"(epoch|time)": [^,]*', r'"\1": …', line) for line in first] == [
        '[1] {"epoch": …, "time": …, "change": "+", "captures": {"n": 1}}',
        '[1] {"epoch": …, "time": …, "change": "+", "captures": {"n": 2}}',
        "[1] ended",
    ]
    assert [line.split()[2:] for line in done.stdout.splitlines() if line.startswith("[2]")] == [
        ["+", "n=1"],
        ["+", "n=2"],
    ]
    assert "[4] ended: no-topic: no topic named 'bg', there are 0" in done.stdout.splitlines()
    assert done.stderr.endswith("ended 1 observation\nended 1 observation\n")


def test_topics_are_listed_on_the_space_that_has_them(
    interpreter: Interpreter, capfd: pytest.CaptureFixture[str]
) -> None:
    assert carry_out(interpreter, "topic publish listed f(1) --durable") == 0
    assert carry_out(interpreter, "topic list") == 0
    assert capfd.readouterr().out.startswith("listed ")
    assert carry_out(interpreter, "topic read listed") == 0
    assert capfd.readouterr().out.endswith(" f(1)\n")
