"""A text of a person is UTF-8, with a mark before it or without; any other encoding is named.

The grid: files and the standard input, of each command that reads one, times encodings.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dataspace.transport.credentials import read_token
from server.cli.main import main
from tests.server.processes import DaemonProcess

RULE = "seen($x) <- here($x).\n"
TESTED = f"{RULE}---\nassert here(1)\nexpect seen(1)\n"
CONFIG = "[limits]\nstreams = 9\n"
WIDE = ["utf-16", "utf-16-le", "utf-16-be"]

READERS = [
    ("a.toml", CONFIG, ["serve", "--check", "--config"]),
    ("a.rules", TESTED, ["rule", "test"]),
]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    try:
        code = main(words)
    except SystemExit as end:
        code = int(end.code or 0)
    return code, capsys.readouterr().err


@pytest.mark.parametrize(("name", "text", "words"), READERS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_mark_of_utf_8_is_no_part_of_the_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, words: list[str], encoding: str
) -> None:
    (tmp_path / name).write_text(text, encoding=encoding)
    code, errors = told(capsys, *words, str(tmp_path / name))
    assert code == 0, errors


@pytest.mark.parametrize(
    ("name", "text", "words"), [*READERS, ("b.rules", RULE, ["rule", "add", "n", "--durable", "d"])]
)
@pytest.mark.parametrize("encoding", [*WIDE, "latin-1"])
def test_another_encoding_is_named_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, words: list[str], encoding: str
) -> None:
    (tmp_path / name).write_bytes(f"{text}# \u00e4\u00f6".encode(encoding))
    mark = "@" if "add" in words else ""
    code, errors = told(capsys, *words, f"{mark}{tmp_path / name}")
    assert code == 2 and "the file must be UTF-8" in errors and "save it as UTF-8" in errors
    assert ("UTF-16" in errors) == (encoding in WIDE)


def test_a_token_file_may_have_a_mark(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a secret of some length", encoding="utf-8-sig")
    assert read_token(tmp_path / "token") == "a secret of some length"


FACT = 'here("\u00e4", "{case}")\n'
INPUTS = [
    (["assert", "-", "--durable", "d"], FACT),
    (["retract", "-", "--durable", "d"], FACT),
    (["send", "-"], FACT),
    (["topic", "publish", "t"], FACT),
    (["shell"], f"send {FACT}"),
]
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    process = DaemonProcess(tmp_path_factory.mktemp("daemon") / "data")
    process.start()
    yield process
    process.stop()


@pytest.mark.slow
@pytest.mark.parametrize("locale", ["C.UTF-8", "POSIX"])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(("words", "text"), INPUTS, ids=[words[0] for words, _ in INPUTS])
def test_the_standard_input_is_utf_8(
    daemon: DaemonProcess, words: list[str], text: str, encoding: str, locale: str
) -> None:
    if locale == "POSIX" and words[0] != "assert":
        pytest.skip("all read by one function")
    text = text.format(case=f"{encoding} {locale}")
    done = subprocess.run(
        [sys.executable, "-m", "dataspace", *words, "--url", daemon.url],
        input=text.encode(encoding),
        capture_output=True,
        env=os.environ | {"LC_ALL": locale, "PYTHONCOERCECLOCALE": "0"},
        timeout=120,
    )
    errors = done.stderr.decode()
    assert "Traceback" not in errors
    if encoding.startswith("utf-8"):
        assert done.returncode == 0 or f"d does not assert {text.strip()}" in errors, errors
    else:
        assert done.returncode == (1 if words == ["shell"] and "UTF-8" not in errors else 2), errors
        assert "line 1 of the standard input: text in UTF-8 is needed" in errors
