"""What a person sees who works at the shell is written down in ``tests/transcripts/commands``.

Each block is a comment, commands, a line ``----``, and each command again with what it printed: standard
output before standard error, then ``exit N`` where that is not 0.  All commands of a file talk to one daemon,
which is new; they run in this process, since starting Python takes longer than any of them.  What rules took
is written as ``…``.

``REWRITE=1`` writes what is printed into the files; read them before you commit them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.cli.main import main
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

FILES = sorted((Path(__file__).parents[2] / "transcripts" / "commands").glob("*.txt"))
assert FILES, "the folder of transcripts has moved"
TOOK = re.compile(r"\d+ rows took \d+\.\d ms")


@pytest.fixture(autouse=True)
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A new daemon, which is the one that commands talk to if they are not told otherwise."""
    process = DaemonProcess(tmp_path / "data")
    process.start()
    monkeypatch.setenv("DATASPACE_URL", process.url)
    yield
    assert process.stop() == 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_transcript(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    written = []
    for block in file.read_text(encoding="utf-8").removeprefix("# ").strip().split("\n\n# "):
        above = block.split("\n----")[0].split("\n")
        commands = [line.removeprefix("$ ") for line in above if line.startswith("$ ")]
        said = [line for command in commands for line in _printed(command, capfd)]
        written.append("\n".join([f"# {above[0]}", *above[1:], "----", *said]))
    text = "\n\n".join(written) + "\n"
    if os.environ.get("REWRITE"):
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text


def _printed(command: str, capfd: pytest.CaptureFixture[str]) -> Iterator[str]:
    """A command and what it prints."""
    program, *words = shlex.split(command)
    assert program == "dataspace", command
    try:
        code = main(words)
    except SystemExit as ended:  # the parser ends the process
        assert isinstance(ended.code, int)
        code = ended.code
    out, err = capfd.readouterr()
    yield f"$ {command}"
    yield from TOOK.sub("… rows took …", out + err).splitlines()
    if code:
        yield f"exit {code}"
