"""The ten classics say what their transcripts say (REWRITE=1 writes them anew, to be read)."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from dataspace.testing import check
from examples.actors.stage import lines

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts" / "examples"
CLASSICS = (
    "ancestors",
    "bank_account",
    "box_and_client",
    "chat",
    "firewall",
    "flip_flop",
    "memo_service",
    "responsibility",
    "two_buyers",
    "work_queue",
)


@pytest.mark.parametrize("name", CLASSICS)
def test_a_classic_gives_its_transcript(name: str) -> None:
    module = importlib.import_module(f"examples.actors.{name}")
    told = "\n".join([f"# {module.__doc__}", *lines(module.main)])
    check(told, TRANSCRIPTS / f"{name}.txt")
