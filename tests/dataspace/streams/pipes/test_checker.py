"""The checker finds a breach of each rule, and finds none where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from dataspace import streams as s
from dataspace.streams.pipes.pipes import NOTHING, BoundStage
from tests.dataspace.streams.runs import Failure, Naive, Scripted
from tests.dataspace.streams.test_ending import Slow, cut_short


async def test_rule_1_a_calm_reader_asks_nothing_after_the_end() -> None:
    link: BoundStage[int] = BoundStage(s.check(s.empty(), calm=True), NOTHING)
    with pytest.raises(s.EndOfStream):
        await link.read()
    with pytest.raises(s.Violation, match="empty: rule 1: read after the end"):
        await link.read()


async def test_rule_2_every_request_is_answered_or_withdrawn() -> None:
    checked = s.check(s.pushable())
    link: BoundStage[int] = BoundStage(checked, NOTHING)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.read)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(s.Violation, match="rule 2: without an answer: read 1"):
            checked.check_over()
        nursery.cancel_scope.cancel()
    checked.check_over()
    assert checked.statistics().withdrawn == 1


class Odd(Naive):
    """Answers as it should not."""

    async def read_some(self, limit: int, source: Any) -> list[int]:
        return [] if limit == 1 else list(range(limit + 1))

    async def peek(self, source: Any) -> bool:
        raise Failure("peek")


@pytest.mark.parametrize("limit", [1, 4])
async def test_rule_6_a_read_of_some_gives_some_and_not_too_many(limit: int) -> None:
    link: BoundStage[int] = BoundStage(s.check(Odd()), NOTHING)
    with pytest.raises(s.Violation, match=f"naive: rule 6: request 1 for up to {limit} values"):
        await link.read_some(limit)


async def test_rule_7_peek_does_not_raise() -> None:
    link: BoundStage[int] = BoundStage(s.check(Odd()), NOTHING)
    with pytest.raises(s.Violation, match="rule 7: peek raised"):
        await link.peek()


async def test_rule_8_upstream_is_aborted_once() -> None:
    link: BoundStage[int] = BoundStage(s.check(Scripted(1, None, False), calm=True), NOTHING)
    await link.abort(True)
    with pytest.raises(s.Violation, match="rule 8: a second abort"):
        await link.abort(True)


async def test_rule_8_what_was_cut_short_may_be_indicated() -> None:
    source: Any = Slow(3, None, False)
    checked = s.check(source, calm=True)
    calm = s.check(s.map(str), calm=True)
    await cut_short(s.pipe(checked, calm, s.filter(str)))
    assert source.closed == [True]
    assert checked.violations == calm.violations == []
    checked.check_over()


async def test_breaches_can_be_collected_instead() -> None:
    checked = s.check(Odd(), eager=False)
    link: BoundStage[int] = BoundStage(checked, NOTHING)
    assert await link.read_some(1) == []
    assert checked.violations == ["naive: rule 6: request 1 for up to 1 values gave 0"]


async def test_a_pipe_can_be_checked_at_every_interface_and_gives_the_same() -> None:
    def stages() -> list[Any]:
        return [
            s.count(30),
            s.map(lambda n: n + 1),
            s.filter(lambda n: n % 2),
            s.buffer(4),
            s.take(9),
            s.collect(),
        ]

    assert await s.pipe(*stages(), checked=True).read() == await s.pipe(*stages()).read()
