"""Each verb, in each role of a daemon, is carried out by the one that was asked, or says who it is.

Lives in virtual time take the place of clocks and sockets for the whole process, so these have one of their
own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_each_verb_in_each_role() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.generated.roles"],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, "\n".join(each for each in done.stdout.splitlines() if "WRONG" in each)
