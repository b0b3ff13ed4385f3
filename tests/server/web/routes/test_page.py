"""HTTP.md shows what happens: each of its commands prints what stands under it.

With ``REWRITE=1`` the page is written anew, to be read.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import server
from tests.server.web.routes.callers import SECONDS, HttpDaemon

PAGE: Final = Path(server.__file__).parent / "HTTP.md"
BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIES: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r'"time":\d{16}'), '"time":TIME'),
    (re.compile(r'"(\d+)-[0-9a-f]{8}"'), r'"\1-IDENTITY"'),
    (re.compile(r"^id: (\d+)-[0-9a-f]{8,16}$", re.MULTILINE), r"id: \1-IDENTITY"),
    (re.compile(r"\r"), ""),
)


def steps(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with what stands under it."""
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = step.splitlines(keepends=True)
        end = 1
        while end < len(lines) and lines[end].startswith("    "):
            end += 1
        yield "".join(lines[:end]), "".join(lines[end:])


def steady(text: str) -> str:
    for pattern, stands in VARIES:
        text = pattern.sub(stands, text)
    return text.strip()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page needs curl")
def test_each_command_of_the_page_prints_what_it_shows(tmp_path: Path) -> None:
    daemon = HttpDaemon(tmp_path / "data")
    daemon.start()

    def run(command: str) -> str:
        at = command.replace("127.0.0.1:7378", f"127.0.0.1:{daemon.web_port}")
        done = subprocess.run(
            ["bash", "-c", at], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert not done.stderr
        return done.stdout

    def rewritten(found: re.Match[str]) -> str:
        told = [
            f"$ {command}{run(command).replace(chr(13), '').rstrip()}\n" for command, _ in steps(found[1])
        ]
        return f"```console\n{''.join(told)}```"

    try:
        page = PAGE.read_text()
        if os.environ.get("REWRITE"):
            PAGE.write_text(BLOCK.sub(rewritten, page))
            return
        commands = [step for found in BLOCK.finditer(page) for step in steps(found[1])]
        assert len(commands) > 15
        for command, shown in commands:
            assert steady(run(command)) == steady(shown), command
    finally:
        daemon.stop()
