"""No name and no value of another client writes lines, or control characters, of its own.

Each command that shows something of others is run against a daemon whose facts, owners, rules, topics,
groups, readers and sessions have hostile names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dataspace import Map, Record, connect_blocking
from dataspace.client.bulk.short import ShortClient
from dataspace.kernel.actions import ASSERT
from server.cli.main import main
from tests.server.processes import DaemonProcess

HOSTILE: Final = "\x1b]0;PWN\x07\x1b[2J\u202e\u2028\x85\x9b31m\t\r\nFAKE line"
LONG: Final = "long\x1b[2J\nFAKE" * 2_000
CLI: Final = Path(main.__code__.co_filename).parent

COMMANDS: Final = [
    "get $",
    "get job($x) --table",
    "get job($x) --csv",
    "get job($x) --json",
    "query job($x)",
    "query job($x) --csv",
    "query job($x) --json",
    "log $",
    "log $ --json",
    "log $ --who",
    "owners $",
    "owners $ --json",
    "observe job($x) --count 1",
    "observe job($x) --count 1 --json",
    "status",
    "status --json",
    "sessions",
    "sessions --json",
    "groups",
    "groups --json",
    "groups out HOSTILE",
    "groups out HOSTILE --json",
    "groups pause HOSTILE",
    "groups retry HOSTILE",
    "groups delete HOSTILE",
    "index",
    "index --format mermaid",
    "rule list",
    "rule list --json",
    "rule why job($x)",
    "rule why job($x) --json",
    "rule why-not other($x)",
    "rule explain",
    "rule graph",
    "rule resume HOSTILE",
    "rule resume RULE",
    "rule remove HOSTILE --durable HOSTILE",
    "actors",
    "actors --json",
    "topic list",
    "topic list --json",
    "topic status HOSTILE",
    "topic end NOTHOSTILE",
    "topic subscribe HOSTILE --until 0",
    "assert FACT --durable HOSTILE",
    "put FACT --durable HOSTILE",
    "retract FACT --durable HOSTILE",
    "retract FACT --durable HOSTILE",
    "retract FACT --lease HOSTILE",
    "retract job(_) --durable HOSTILE",
    "send FACT --expect absent(1)",
    "sessions end HOSTILE",
    "get HOSTILE",
    "get job($x) --space HOSTILE",
    "get $ --space system",
    "get $ --space system --csv",
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    daemon = DaemonProcess(tmp_path_factory.mktemp("hostile") / "data", "--log-level", "debug")
    daemon.start()
    with ShortClient(daemon.url, name=HOSTILE) as client:
        facts = [
            Record("job", HOSTILE),
            Record(HOSTILE, HOSTILE, Map({HOSTILE: (HOSTILE,)})),
            Record("job", LONG),
            Record("rule", HOSTILE, HOSTILE),
            Record("rule", "bad\nFAKE", "bad($x) <- job($x), $y = 1."),
        ]
        client.commit([(ASSERT, 100 + at, fact) for at, fact in enumerate(facts)], HOSTILE)
        client.request("lease", {"owner": f"lease:100:{HOSTILE}"})
        client.request("lease", {"owner": f"lease:60000:{HOSTILE}"})
        client.commit([(ASSERT, 1, Record("leased", 1))], f"lease:60000:{HOSTILE}")
        client.request("acknowledge", {"reader": HOSTILE, "epoch": 1})
    with connect_blocking(daemon.url, name=HOSTILE) as space:
        publishing = space.publish(HOSTILE, durable=True, name=HOSTILE)
        with publishing as publication, space.consume("job($x)", group=HOSTILE, start="held") as jobs:
            next(iter(jobs))
            publication.send(HOSTILE)
            yield daemon
    daemon.stop()
    assert not harm(daemon.errors), "the log"
    assert "PWN" in daemon.errors, "of what was logged"


def harm(text: str) -> list[str]:
    """The control characters in a text, and its lines that another client has made."""
    controls = [each for each in text if not each.isprintable() and each != "\n"]
    return controls + re.findall("^FAKE.*", text, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_no_line_and_no_control_character_of_others(
    daemon: DaemonProcess, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    said = {
        "HOSTILE": HOSTILE,
        "NOTHOSTILE": f"no {HOSTILE}",
        "RULE": "bad\nFAKE",
        "FACT": 'job("\\u001b[2J\\nFAKE")',
    }
    words = [said.get(word, word) for word in command.split()]
    try:
        code = main([*words, "--url", daemon.url])
    except SystemExit as end:  # of the command line itself
        code = int(end.code or 0)
    printed = capfd.readouterr()
    assert code in (0, 1, 2, 4)
    assert not harm(printed.out) and not harm(printed.err)


def test_commands_print_through_one_outlet() -> None:
    """Others print what this program has made: a page, a secret, a script, what it hosts itself."""
    own = {
        "output.py",
        "status.py",
        "inspector.py",
        "completion.py",
        "token.py",
        "parser.py",
        "serve.py",
        "get.py",
    }
    own |= {"interpreter.py", "run.py", "showing.py", "consume.py", "facts.py", "topic.py"}
    printing = re.compile(r"(?<![\w.])print\(|sys\.stdout\.write|sys\.stderr\.write")
    found = {path.name for path in CLI.rglob("*.py") if printing.search(path.read_text())}
    assert found <= own, found - own
