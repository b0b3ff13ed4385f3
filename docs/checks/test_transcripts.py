"""Every command of the pages, those beside the code included, prints what the page shows.

Each page begins in an empty folder, without a daemon.  The ports of the pages are replaced by free ones, and
what differs from run to run (times, sizes, processes) is compared by its form.  ``REWRITE=1`` writes what is
printed into the pages; read them before you commit them.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from docs.checks.blocks import Block, replayed, written
from docs.checks.terminals import Terminal
from docs.plan import TOP, documents

if TYPE_CHECKING:
    from tests.postgres.servers import Servers

PORTS: Final = ("7377", "7378", "7379")
POSTGRES: Final = "5432"
"""The port of PostgreSQL in a page that needs one: a server of its own, with nothing in it."""

ELSEWHERE: Final = {
    "drill.md": "tests/packaging/test_drill.py",
    "HTTP.md": "tests/server/web/routes/test_page.py",
}
"""Pages beside the code whose commands are run by tests of their own."""

NEEDED: Final = {"history.md": ("duckdb", "polars", "deltalake")}
"""Modules of other projects that a page uses."""

PAGES: Final = sorted(
    page
    for page in [*(TOP / "docs" / "pages").rglob("*.md"), *documents()]
    if "```console" in page.read_text() and page.name not in ELSEWHERE
)
assert len(PAGES) > 4, "the pages have moved"

VARYING: Final = [
    (re.compile(each), f"<{kind}>")
    for kind, each in {
        "time": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?",
        "size": r"\d+(?:\.\d+)? (?:B|KiB|MiB|GiB)\b",
        "identity": r"\b[0-9a-f]{32}\b",
        "process": r"(?:process(?: number)?|pid) +\d+",
        "duration": r"\b\d+(?:\.\d+)? ?(?:ms|s|m|h)\b",
        "port": r"127\.0\.0\.1:\d{5}\b",
        "held": r"(?<=connections: )[^;]+",
    }.items()
]
"""What differs from run to run, in the order in which it is replaced."""

UNADDRESSED: Final = re.compile(r"^dataspace serve(?! .*--(?:listen|config))")
"""A daemon at the address that daemons have by themselves, which is another one here."""


def alike(line: str) -> str:
    """Returns a line without what differs from run to run."""
    for varying, kind in VARYING:
        line = varying.sub(kind, line)
    return re.sub(r"  +", "  ", line)


class Stage:
    """An empty folder, the terminals of a page, and the ports that it has instead of those that it shows."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self.ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.terminals: dict[str, Terminal] = {}

    def terminal(self, title: str) -> Terminal:
        if title not in self.terminals:
            terminal = self.terminals[title] = Terminal(self.folder, self.variables())
            self._stack.callback(terminal.close)
        return self.terminals[title]

    def left(self) -> dict[str, list[str]]:
        """Returns what terminals have printed and no step has taken; asked before any of them is closed."""
        left = {title: terminal.left() for title, terminal in self.terminals.items()}
        return {title: lines for title, lines in left.items() if lines}

    def variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DATASPACE_")}
        own = {
            "PATH": f"{self.programs()}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "LC_ALL": "C.UTF-8",
            "DATASPACE_URL": f"tcp://127.0.0.1:{self.ports['7377']}",
            "DATASPACE_SERVE_CLUSTER_LEASE": "8s",  # so that a busy machine makes no leader step down
        }
        return kept | own

    def programs(self) -> Path:
        """Returns a folder with ``dataspace`` and ``python`` as they run this test, and ``rolling.sh``."""
        folder = self.folder / ".programs"
        folder.mkdir(exist_ok=True)
        for name, words in (("dataspace", " -m dataspace"), ("python", "")):
            program = folder / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
            program.chmod(0o755)
        shutil.copy(TOP / "server" / "deploy" / "rolling.sh", folder)
        return folder

    def hidden(self, text: str) -> str:
        """Returns a text of the page with the ports of this run."""
        for shown, real in self.ports.items():
            text = re.sub(rf"\b{shown}\b", real, text)
        return UNADDRESSED.sub(rf"\g<0> --listen tcp:127.0.0.1:{self.ports['7377']}", text)

    def shown(self, text: str) -> str:
        """Returns what was printed with the ports of the page."""
        for shown, real in self.ports.items():
            text = text.replace(real, shown)
        return text.replace(str(self.folder), "~")

    def play(self, block: Block) -> str:
        """Runs a block, and returns its text with what is printed now."""
        if block.language != "console":
            (self.folder / block.title).write_text(self.hidden(block.text), encoding="utf-8")
            return block.text
        terminal = self.terminal(block.title)
        steps = block.steps()
        for at, step in enumerate(steps):
            if step.command:
                terminal.start(self.hidden(step.command))
            expected = step.lines
            ends = at < len(steps) - 1 and steps[at + 1].command != "^C"
            if os.environ.get("REWRITE"):
                said = terminal.settled(ends=ends)
            else:
                said = terminal.printed(len(expected), ends=ends)
            step.lines = self.compared(expected, [self.shown(line) for line in said])
        return written(steps)

    def compared(self, expected: list[str], said: list[str]) -> list[str]:
        """Returns the lines as the page has them where they are alike, else as they were printed."""
        same = [alike(line) for line in expected] == [alike(line) for line in said]
        return expected if same else said


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_the_page_shows_what_is_printed(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = page.read_text(encoding="utf-8")
    for module in NEEDED.get(page.name, ()):
        pytest.importorskip(module, reason="not installed: make .venv/readers")
    with ExitStack() as stack:
        stage = Stage(tmp_path, stack)
        if f"127.0.0.1:{POSTGRES}" in text:
            servers: Servers = request.getfixturevalue("servers")
            stage.ports[POSTGRES] = str(servers.new(tcp=True).start().port)
        played = replayed(text, stage.play)
        left = stage.left()
    if os.environ.get("REWRITE"):
        page.write_text(played, encoding="utf-8")
    assert played.splitlines() == page.read_text(encoding="utf-8").splitlines()
    assert left == {}, "was printed and is not shown"


def free_ports(count: int) -> list[str]:
    """Returns ports on which nothing listens."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [str(each.getsockname()[1]) for each in sockets]
