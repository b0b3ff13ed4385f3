"""Every block of code in ACTORS.md runs as it stands, and what it asserts holds."""

from __future__ import annotations

import re
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace.actors import Turn, capture, readable, record
from dataspace.actors.layers import Quit, inbound, layer, outbound
from dataspace.actors.services import Require, service
from dataspace.actors.shell import Outside, run
from dataspace.actors.supervision import Restart, supervise
from dataspace.testing import Room

DOCUMENT = Path(dataspace.__file__).parent / "ACTORS.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
KINDS = (ContextVar, Outside, Restart, Room, Turn, datetime)
FUNCTIONS = (capture, inbound, layer, outbound, readable, record, run, service, supervise)
NAMES = {each.__name__: each for each in (*KINDS, *FUNCTIONS, trio)} | {
    "Quit": Quit,
    "Require": Require,
    "UTC": UTC,
}


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[re.split(r"\W+", each)[1] for each in SNIPPETS])
def test_a_block_runs(snippet: str) -> None:
    exec(compile(snippet, str(DOCUMENT), "exec"), dict(NAMES))


def test_there_are_as_many_as_there_are_nouns() -> None:
    assert len(SNIPPETS) >= 10
