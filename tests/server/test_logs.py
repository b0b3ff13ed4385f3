"""One event is one line, as text or as JSON, whatever is in it."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path

import pytest

import dataspace
import relay
import server
from server.logs import AUDIT, JsonLines, audit_to, event_of, formatter


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
        "event": "slow",
        "message": "slow turn: 3",
        "kind": "turn",
    }


def test_an_event_has_a_name_without_what_is_filled_in() -> None:
    def event(message: str, *args: object, **more: object) -> str:
        return str(json.loads(JsonLines().format(record(message, *args, **more)))["event"])

    assert event("refused a token from %s: %s", "x", "y") == "refused-a-token-from"
    assert event("session %d may come back within %g s", 1, 2.0) == "session-may-come-back-within-s"
    assert event("%.3f s at 100%%", 1.0) == "s-at-100"
    assert event("%s", "all of it is filled in", event="warning") == "warning"
    assert event(" %r %-8s", 1, 2) == "other"


def _calls() -> list[tuple[str, ast.Call]]:
    """The calls that write a line of the log, each with where it stands."""
    found = []
    for package in (dataspace, relay, server):
        for file in sorted(Path(package.__file__ or "").parent.rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in ("debug", "info", "warning", "error", "exception")
                    and isinstance(node.func.value, ast.Name)
                    and node.func.value.id in ("logger", "audit", "log")
                ):
                    found.append((f"{file}:{node.lineno}", node))
    return found


def test_every_line_of_the_log_has_a_form_or_a_name() -> None:
    calls = _calls()
    assert len(calls) > 40
    nameless = []
    for where, call in calls:
        form, named = call.args[0], [each.value for each in call.keywords if each.arg == "extra"]
        is_form = isinstance(form, ast.Constant) and event_of(record(str(form.value))) != "other"
        if not is_form and not any('"event"' in ast.unparse(each).replace("'", '"') for each in named):
            nameless.append(where)
    assert not nameless


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
