"""A file of a person is UTF-8, with a mark before it or without; any other encoding is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.cli.main import main

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
