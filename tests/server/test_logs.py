"""One event is one line, as text or as JSON, whatever is in it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from server.logs import AUDIT, JsonLines, audit_to, formatter


def record(message: str, *args: object, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("dataspace", logging.WARNING, "here.py", 1, message, args, None)
    made.created = 1_700_000_000.25
    made.__dict__.update(more)
    return made


def test_a_line_of_json_has_the_event_and_its_fields() -> None:
    line = JsonLines().format(record("slow %s: %d", "turn", 3, fields={"kind": "turn", "level": "mine"}))
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250000Z",
        "level": "warning",
        "logger": "dataspace",
        "event": "slow %s: %d",
        "message": "slow turn: 3",
        "kind": "turn",
    }


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[2J", "\u2028", "\ud800", '"quoted"'])
def test_foreign_text_stays_in_its_line(name: str) -> None:
    line = JsonLines().format(record("session of %s", name))
    assert line.isascii() and line.isprintable()
    assert json.loads(line)["message"] == f"session of {name}"


def test_an_exception_is_in_the_same_line() -> None:
    made = record("failed")
    try:
        raise ValueError("why")
    except ValueError as error:
        made.exc_info = (ValueError, error, error.__traceback__)
    line = JsonLines().format(made)
    assert "\n" not in line and "ValueError: why" in json.loads(line)["exception"]


def test_text_is_as_it_was() -> None:
    assert formatter("text").format(record("hello %s", "there")) == "2023-11-14T22:13:20Z WARNING hello there"


def test_the_audit_log_is_private_and_is_made_anew_when_it_was_renamed(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    logger = logging.getLogger(AUDIT)
    with audit_to(file):
        logger.info("one")
        file.rename(tmp_path / "audit.1")
        logger.info("two")
    assert json.loads((tmp_path / "audit.1").read_text())["message"] == "one"
    assert json.loads(file.read_text())["message"] == "two"
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}
    assert not logger.handlers and logger.propagate
