"""Each test that SECURITY.md names exists."""

from __future__ import annotations

import re
from pathlib import Path

import server

PAGE = Path(server.__file__).parent / "SECURITY.md"
ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_each_promise_names_a_test_that_there_is() -> None:
    named = NAMED.findall(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 20
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert missing == []
