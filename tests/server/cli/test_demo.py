"""The demo plays to its end: real processes, one of them killed, every task done, and nothing left behind."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from server.cli.demo.showing import TASKS, Board, drawn


@pytest.mark.slow
def test_a_worker_is_killed_and_its_task_is_done_by_another(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dataspace", "demo", "--speed", "40"],
        env=os.environ
        | {"TMPDIR": str(tmp_path), "DATASPACE_URL": "tcp://127.0.0.1:1", "DATASPACE_TOKEN": "other"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "\x1b" not in done.stdout, "it is no terminal"
    killed = re.search(r"kill -9 (\d+): bob is killed in the middle of task (\d+)", done.stdout)
    assert killed is not None
    told = done.stdout[killed.end() :]
    assert f"task {killed[2]} waits again" in told
    proof = told[told.index("dataspace rule why 'waiting(") :].splitlines()
    assert proof[1].startswith(f"    waiting({killed[2]}, ")
    assert f"        not claim({killed[2]}, _)" in proof
    by = re.search(rf"Task {killed[2]} was begun by bob, who was killed, and done by (ann|cho)\.", told)
    assert by is not None
    assert f"{by[1]} has done task {killed[2]} " in told
    assert len(set(re.findall(r"has done task (\d+) ", done.stdout))) == len(TASKS)
    assert list(tmp_path.iterdir()) == []
    for process in re.findall(r"\(process (\d+)\)", done.stdout):
        with pytest.raises(ProcessLookupError):
            os.kill(int(process), 0)


def test_a_task_is_its_first_claimant_s_until_the_claim_goes() -> None:
    board = Board()
    assert board.claim(1, "ann", is_new=True) == "ann takes task 1, measure the hall"
    assert board.claim(1, "bob", is_new=True) == "", "the second withdraws"
    assert (board.state(1), board.task_of("ann"), board.task_of("bob")) == (("in work", "ann"), 1, None)
    assert board.claim(1, "bob", is_new=False) == ""
    assert board.claim(1, "ann", is_new=False) == ""
    assert "the claim of ann has ended" in board.wait(1)
    assert (board.state(1), board.begun[1]) == (("waiting", ""), ["ann"])


def test_a_report_counts_once_and_not_of_one_who_was_killed_before() -> None:
    board = Board()
    for task, who in ((1, "ann"), (2, "bob")):
        board.claim(task, who, is_new=True)
    assert board.accepts(1, "ann")
    assert not board.accepts(1, "ann")
    assert board.give_up("ann") is None, "it has reported"
    assert board.give_up("cho") is None, "it has no task"
    assert board.give_up("bob") == 2
    assert not board.accepts(2, "bob")
    assert board.finish(1, "ann") == "ann has done task 1 (1 of 12)"
    assert board.claim(1, "ann", is_new=False) == ""
    assert board.state(1) == ("done", "ann")


def test_the_board_is_drawn_with_each_task_and_who_has_it() -> None:
    board = Board()
    board.worker("ann", is_new=True)
    board.claim(3, "ann", is_new=True)
    board.finish(4, "bob")
    out = io.StringIO()
    Console(file=out, width=80, color_system=None).print(drawn(board))
    lines = [re.findall(r"\w+", line) for line in out.getvalue().splitlines()]
    assert ["3", "lay", "the", "floor", "in", "work", "ann"] in lines
    assert ["4", "hang", "the", "doors", "done", "bob"] in lines
    assert ["1", "measure", "the", "hall", "waiting"] in lines
