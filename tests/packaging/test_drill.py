"""The operator's drill is done by the commands of its page on an installed wheel, and prints what it says."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.project import TOP, Project, build_wheel, copy_sources
from tests.upgrade.make import KEPT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.torture,
    pytest.mark.skipif("TORTURE_ROUNDS" not in os.environ, reason="a minute of commands, for make torture"),
]

PAGE = TOP / "docs" / "pages" / "tutorials" / "drill.md"
DONE = "the command is done"
SECONDS = 120.0

VOLATILE = (
    (re.compile(r"[0-9a-f]{12,}"), "ID"),
    (re.compile(r"\d[\d.,:TZ-]*(?: ?(?:KiB|MiB|GiB|B|ms|s)\b)?"), "N"),
    (re.compile(r" +"), " "),
)


class Shell:
    """One bash in which all commands of the page are run, one after the other."""

    def __init__(self, folder: Path, path: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DATASPACE")}
        kept.pop("PYTHONPATH", None)
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=kept | {"PATH": f"{path}:{kept['PATH']}", "LC_ALL": "C.UTF-8", "KEPT": str(KEPT)},
            process_group=0,
        )

    def run(self, command: str) -> list[str]:
        """Returns the lines that a command prints."""
        assert self._process.stdin is not None and self._process.stdout is not None  # pipes, as asked for
        self._process.stdin.write(f"{command}\necho; echo '{DONE}'\n".encode())
        self._process.stdin.flush()
        said, until = b"", time.monotonic() + SECONDS
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while not said.endswith(f"\n{DONE}\n".encode()):
                assert ready.select(until - time.monotonic()), f"{command}: no end after {said.decode()}"
                more = os.read(self._process.stdout.fileno(), 1 << 16)
                assert more, f"{command}: the shell has ended: {said.decode()}"
                said += more
        return said.decode().removesuffix(f"\n{DONE}\n").rstrip("\n").splitlines()

    def end(self) -> None:
        """Ends it with all that it has started."""
        os.killpg(self._process.pid, 9)
        self._process.communicate()


def plain(line: str) -> str:
    """Returns a line without what differs from run to run."""
    for pattern, word in VOLATILE:
        line = pattern.sub(word, line)
    return line.strip()


def performed(page: str, shell: Shell, folder: Path) -> Iterator[str]:
    """Yields the lines of a page with what its commands print now; writes the files that it names."""
    blocks = re.split(r"(^```.*?^```$)", page, flags=re.MULTILINE | re.DOTALL)
    for block in blocks:
        head, _, rest = block.partition("\n")
        if head.startswith("```toml "):
            (folder / head.removeprefix("```toml ")).write_text(rest.removesuffix("```"))
        if head != "```console":
            yield from block.removeprefix("\n").splitlines()
            continue
        yield head
        for line in rest.splitlines():
            if line.startswith("$ "):
                yield line
                if not line.startswith("$ pip install"):  # done already: from the wheel, without an index
                    yield from shell.run(line[2:])
        yield "```"


def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    wheel = build_wheel(copy_sources(tmp_path / "source"), tmp_path / "wheel")
    project = Project(tmp_path, wheel)
    folder = tmp_path / "shell"
    folder.mkdir()
    shell = Shell(folder, project.python.parent)
    page = PAGE.read_text()
    try:
        done = list(performed(page, shell, folder))
    finally:
        shell.end()
    if os.environ.get("REWRITE"):
        PAGE.write_text("\n".join(done) + "\n")
    else:
        assert [plain(line) for line in done] == [plain(line) for line in page.splitlines()]
