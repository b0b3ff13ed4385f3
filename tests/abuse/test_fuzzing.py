"""Attackers of all kinds change nothing and learn nothing, whatever they send; see ``fuzzing``.

Ten million packets with 50 rounds; a failure says how to run its seed again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.abuse.fuzzing import Fuzzing
from tests.abuse.oracle import BEGIN
from tests.abuse.sizes import ROUNDS, ROWS
from tests.guarantees.validators import VALIDATORS
from tests.server.tracing.collectors import Collector, collecting

JUDGED = VALIDATORS.keys() - {"session_ends", "leases", "graces", "conditions", "topics", "locks"}

PACKETS = 100_000 * ROUNDS or 10_000


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("seed", [1, 2])
def test_attackers_change_nothing_and_learn_nothing(tmp_path: Path, seed: int) -> None:
    with collecting() as collector:
        traced = ("--traces", collector.url, "--traces-ratio", "0.05") if seed == 2 else ()
        fuzzing = Fuzzing(tmp_path, seed + 2 * ROUNDS, options=traced)
        fuzzing.run(PACKETS)
        _check_spans(collector, are_made=seed == 2)
    ROWS.extend(fuzzing.report().splitlines())
    assert fuzzing.judged == JUDGED
    came = fuzzing.oracle.answers
    for each in ("Accepted", "Answer", "Values", "Denied not-allowed", "Refusal not-allowed"):
        assert came[each] > 50, f"the fuzzer tests little: {dict(came)}"


def _check_spans(collector: Collector, *, are_made: bool) -> None:
    """A daemon that traces makes spans, without a word of what is in the space; another sends nothing."""
    assert bool(collector.spans) == are_made
    for span in collector.spans:
        assert BEGIN not in f"{span}", f"a span has what only its tenant may see: {span}"
    turns = [each for each in collector.spans if each.name == "turn"]
    assert any(each.parent for each in turns) == are_made, "a part of the attackers' own traces"
