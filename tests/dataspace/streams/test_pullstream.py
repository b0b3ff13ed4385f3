"""The pull-stream document, its three layers in its order: values and ends, aborts, failures.

``asks`` makes requests one after another in tasks of their own, each before the one before is answered; the
answers are in the order in which they came, with the number of their request.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from dataspace import streams as s
from dataspace.streams.stages.protocol import AnyStage
from tests.dataspace.streams.runs import Failure, Naive, Run, Scripted


async def asks(
    source: AnyStage, schedule: str, transformers: Sequence[AnyStage] = (), *, overtakes: bool = True
) -> str:
    """The answers, such as ``1=0 2=done 3=done``; ``error`` for a bare error, ``failed`` for its mark."""
    run = Run([source, *transformers])
    with trio.fail_after(60):
        await run.play(schedule, overtakes=overtakes)
    words = {"EndOfStream": "done", "Failure": "error"}
    said = []
    for number, kind, value in run.answers:
        if kind == "Aborted":
            kind = "failed" if value.reason is not True else "done"
        said.append(f"{number + 1}={value if kind == 'value' else words.get(kind, kind)}")
    return " ".join(said)


def scripted(number: int, end: Exception | None = None) -> Scripted:
    return Scripted(number, end, True)


@pytest.fixture(params=["none", "map", "naive", "filter"])
def through(request: pytest.FixtureRequest) -> list[AnyStage]:
    made: dict[str, list[AnyStage]] = {
        "none": [],
        "map": [s.map(lambda n: n)],
        "naive": [Naive()],
        "filter": [s.filter(lambda n: True)],
    }
    return made[request.param]


# -- 1: the base protocol -----------------------------------------------------------------------------


async def test_a_request_on_an_empty_stream(through: list[AnyStage]) -> None:
    assert await asks(scripted(0), "a", through) == "1=done"


async def test_concurrent_requests_on_an_empty_stream(through: list[AnyStage]) -> None:
    assert await asks(scripted(0), "aaa", through) == "1=done 2=done 3=done"


async def test_concurrent_requests_on_a_stream(through: list[AnyStage]) -> None:
    assert await asks(scripted(3), "aaaaa", through) == "1=0 2=1 3=2 4=done 5=done"


async def test_linear_requests_on_a_stream(through: list[AnyStage]) -> None:
    assert await asks(scripted(3), "aaaaa", through, overtakes=False) == "1=0 2=1 3=2 4=done 5=done"


async def test_values_are_made_when_they_are_asked_for(through: list[AnyStage]) -> None:
    source = scripted(3)
    await asks(source, "aa", through)
    assert list(source._values) == [2]


# -- 2: abortable -------------------------------------------------------------------------------------


async def test_an_abort_after_the_end_has_no_effect(through: list[AnyStage]) -> None:
    assert await asks(scripted(1), "aax", through) == "1=0 2=done 3=None"
    assert await asks(scripted(0), "aai", through, overtakes=False) == "1=done 2=done 3=None"


async def test_an_abort_before_any_request(through: list[AnyStage]) -> None:
    source = scripted(3)
    assert await asks(source, "x", through) == "1=None"
    assert len(source._values) == 3


async def test_an_indication_before_any_request(through: list[AnyStage]) -> None:
    source = scripted(3)
    assert await asks(source, "ia", through) == "1=None 2=done"
    assert len(source._values) == 3


async def test_after_an_abort_requests_aborts_and_indications_are_answered(through: list[AnyStage]) -> None:
    assert await asks(scripted(3), "axaxi", through, overtakes=False) == "1=0 2=None 3=done 4=None 5=None"


async def test_an_abort_overtakes_and_the_requests_before_it_are_answered_first(
    through: list[AnyStage],
) -> None:
    """The seed allows a value for those; the checker of the papers does not, and so we give none."""
    assert await asks(s.pushable(), "aaxa", through) == "1=done 2=done 3=None 4=done"


async def test_an_indication_answers_the_requests_that_hang(through: list[AnyStage]) -> None:
    assert (await asks(s.pushable(), "aai", through)).split()[-2:] == ["1=done", "2=done"]


async def test_a_transformer_may_abort_on_its_own() -> None:
    source = scripted(5)
    assert await asks(source, "aaaa", [s.take(2)]) == "1=0 2=1 3=done 4=done"
    assert source.closed == [True]
    assert len(source._values) == 3, "two asks cause two reads"


# -- 3: failable --------------------------------------------------------------------------------------


async def test_a_failed_stream_answers_with_its_error_from_then_on(through: list[AnyStage]) -> None:
    assert await asks(scripted(1, Failure("x")), "aaaa", through) == "1=0 2=error 3=failed 4=failed"


async def test_an_error_from_downstream_fails_the_stream(through: list[AnyStage]) -> None:
    source = scripted(3)
    assert await asks(source, "aea", through, overtakes=False) == "1=0 2=None 3=failed"
    assert [repr(reason) for reason in source.closed] == ["Failure('sink')"]


async def test_an_error_may_be_indicated(through: list[AnyStage]) -> None:
    source = scripted(3)
    assert await asks(source, "afa", through, overtakes=False) == "1=0 2=None 3=failed"
    assert [repr(reason) for reason in source.closed] == ["Failure('sink')"]


@pytest.mark.parametrize(
    ("number", "schedule", "answers"),
    [
        (3, "xea", "1=None 2=None 3=done"),
        (3, "exa", "1=None 2=None 3=failed"),
        (0, "aea", "1=done 2=None 3=done"),
    ],
)
async def test_the_first_cause_of_an_end_wins(
    number: int, schedule: str, answers: str, through: list[AnyStage]
) -> None:
    assert await asks(scripted(number), schedule, through, overtakes=False) == answers
