"""Attackers of all kinds change nothing and learn nothing, whatever they send; see ``fuzzing``.

Ten million packets with 50 rounds; a failure says how to run its seed again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.abuse.fuzzing import Fuzzing
from tests.abuse.sizes import ROUNDS, ROWS

PACKETS = 100_000 * ROUNDS or 20_000


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("seed", [1, 2])
def test_attackers_change_nothing_and_learn_nothing(tmp_path: Path, seed: int) -> None:
    fuzzing = Fuzzing(tmp_path, seed + 2 * ROUNDS)
    fuzzing.run(PACKETS)
    ROWS.extend(fuzzing.report().splitlines())
    came = fuzzing.oracle.answers
    for each in ("Accepted", "Answer", "Values", "Denied not-allowed", "Refusal not-allowed"):
        assert came[each] > 50, f"the fuzzer tests little: {dict(came)}"
