"""Jobs of a group are handed out, and are done, as a plain list of them says."""

from __future__ import annotations

import os
from itertools import product
from typing import Final

import pytest

from tests.generated.groups import failure
from tests.generated.jobs import (
    Again,
    Come,
    Done,
    Fall,
    Go,
    HandOut,
    Join,
    Keep,
    Leave,
    Operation,
    Options,
    Pass,
    Program,
    Save,
    Start,
    draw,
    less,
)
from tests.generated.shrinking import check

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
PROGRAMS = 3_000
"""Programs of the quick form, in about two seconds."""


SMALL: Final[tuple[Options, ...]] = (
    Options(most_out=1),
    Options(most_out=3),
    Options(exclusive=True),
    Options(rate=5.0),
    Options(levels=True),
    Options(is_keyed=True, levels=True, most_out=2),
    Options(is_keyed=True, endings=True),
    Options(backoffs=(20.0,), parks=True),
    Options(exclusive=True, levels=True, backoffs=(0.2, 30.0), parks=True),
)
"""Options of small programs: each of the further ones alone, and some together."""

BEGIN: Final[Program] = (
    Join("m", 2),
    Join("n", 2),
    Come((("a", 0, False), ("a", 2, True), ("b", 1, True))),
    HandOut(),
)
STEPS: Final[tuple[tuple[Operation, ...], ...]] = (
    (Done("m", (("mine", 0),)), HandOut()),
    (Again("m", 0, 0.0, True),),
    (Come((("a", 1, False), ("b", 2, True))), HandOut()),
    (Go("a", 0), Come((("a", 0, False),))),
    (Go("a", 0), HandOut()),
    (Fall("m", False), HandOut()),
    (Pass(0.3), HandOut()),
    (Pass(31.0), HandOut()),
    (Save(), Start(), Join("n", 2), HandOut()),
)


def test_a_fact_that_came_again_while_out_is_one_job_after_a_start_though_both_were_parked() -> None:
    options = Options(backoffs=(20.0,), parks=True)
    came = Come((("a", 1, False),))
    out = (Join("m", 2), came, HandOut(), Go("a", 1), came, HandOut())
    put_off = (Again("m", 0, 0.0, True), Again("m", 0, 0.0, True))
    program = (options, *out, *put_off, Save(), Start(), Join("m", 2), Pass(31.0), HandOut())
    assert failure(program) is None


def test_two_members_of_an_exclusive_group_do_not_both_keep_jobs_in_a_start() -> None:
    joins = (Join("m", 1), Join("n", 1))
    two = Come((("a", 1, True), ("b", 1, True)))
    parted = (HandOut(), Again("m", 0, 1.0, False), HandOut(), Leave("m", False), HandOut())
    kept = (Keep("m", 2), Keep("n", 1), HandOut())
    assert failure((Options(exclusive=True), *joins, two, *parted, Save(), Start(), *joins, *kept)) is None


@pytest.mark.slow
def test_small_programs() -> None:
    for options, *steps in product(SMALL, STEPS, STEPS, STEPS):
        program = (options, *BEGIN, *[each for step in steps for each in step])
        assert failure(program) is None, program


@pytest.mark.slow
def test_programs() -> None:
    check(range(PROGRAMS), draw, failure, less)


@pytest.mark.torture(long=True)
def test_further_programs() -> None:
    check(range(PROGRAMS, PROGRAMS + 10_000 * ROUNDS), draw, failure, less)
