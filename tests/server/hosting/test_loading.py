"""What a daemon and the process of an isolated actor do alike: traces are added to, whoever wrote before."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataspace.actors.engine.records import record
from dataspace.actors.rendering import BEGINNING
from dataspace.testing import Room
from server.hosting.loading import traced

Say = record("say", "x")


@pytest.mark.parametrize("name", ["turns.txt", "turns.mmd"])
def test_it_goes_on_in_a_file_that_is_there(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    for life in "1.", "2.":
        room = Room()
        with traced(room.engine, file, origin=life):
            room.play(lambda turn: turn.send(Say("hi")))
        room.play(lambda turn: turn.send(Say("untold")))
    told = file.read_text()
    assert told.count('! say("hi")') == 2 and "untold" not in told
    if name.endswith(".mmd"):
        assert told.count("sequenceDiagram") == 1 and told.startswith(BEGINNING)
    else:
        assert "turn 1.1 " in told and "turn 2.1 " in told


def test_a_trace_that_cannot_be_written_ends_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    room = Room()
    with traced(room.engine, Path("/dev/full")):
        for _ in range(2):
            room.play(lambda turn: turn.send(Say("hi")))
    assert not room.crashes and [record.levelname for record in caplog.records] == ["ERROR"]
    assert "turns are not traced any more: /dev/full" in caplog.text
