"""Each planted defect has its one place, and a module that is imported with it counts the executions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted.defects import ALL, DEFECTS
from tests.planted.finding import DAEMON, Outcome, read, tabulated
from tests.planted.planting import ROOT, Defect, Misplaced, applied, source_of


def test_names_are_unique() -> None:
    assert len(DEFECTS) == len(ALL) >= 60


@pytest.mark.slow
def test_each_defect_applies_in_exactly_one_place() -> None:
    gone = []
    for each in ALL:
        try:
            compile(applied(source_of(each.module), each), each.module, "exec")
        except (Misplaced, FileNotFoundError) as error:
            gone.append(f"{each.name}: {error}")
    assert not gone


@pytest.mark.parametrize(("there", "places"), [("a + b", 2), ("a - b", 0), ("return c", 1), ("c", 1)])
def test_one_place_is_wanted_whatever_its_layout(there: str, places: int) -> None:
    source = "def f(a, b):\n    c = (a +\n        b)\n    d = a + b\n    return c  # so\n"
    try:
        applied(source, Defect("wrong", "kernel", "m", "f", there, "1"))
    except Misplaced as error:
        assert str(error) == f"{places} places in f are {there!r}"
    else:
        assert places == 1


@pytest.mark.slow
def test_a_module_is_imported_with_its_defect_and_counts() -> None:
    run = [sys.executable, "-c", _PLANTS]
    ended = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["20000", "1"]


_PLANTS = """
from tests.planted.planting import Defect, plant
place = "dataspace.instants", "instant_of", "-(-micros // GRID)", "micros // GRID"
planted = plant(Defect("early", "kernel", *place))
from dataspace.instants import instant_of
print(instant_of(20_001), planted.executed)
"""


@pytest.mark.slow
def test_the_table_says_by_which_seed_a_defect_is_found() -> None:
    run = [sys.executable, "-m", "tests.planted", "message-twice", "--seconds", "10"]
    ended = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0
    assert "found at the kernel by seed" in ended.stdout and "kernel: 1 of 1 found" in ended.stdout


def test_a_kept_result_is_shown_until_its_row_is_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick, slow = DEFECTS["message-twice"], DEFECTS["http-messages-lost"]
    outcomes = [
        Outcome(quick.name, quick.place, quick.door, True, "2: a turn sends it twice", 3, 1, 0.1, 0),
        Outcome(slow.name, slow.place, DAEMON, True, "4: it is lost", 9, 41, 20.0, 40),
    ]
    kept = tmp_path / "kept"
    kept.write_text("".join([json.dumps(each._asdict()) + "\n" for each in outcomes]))
    assert tabulated([quick, slow], 60.0, kept, again=False) == 0
    said = capsys.readouterr().out
    assert "kernel: 1 of 1 found (100%, 100% by the quick form)" in said
    assert "daemon: 1 of 1 found (100%, 0% by the quick form)" in said
    assert len(kept.read_text().splitlines()) == 2, "nothing was run"
    assert slow._replace(instead="pass  # otherwise").place not in read(kept)
