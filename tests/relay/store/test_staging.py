"""What is staged is on disk, bounded, and there whole or refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given, strategies as st

from dataspace.errors import Refused
from relay.store.ports import StagedTables
from relay.store.sqlite.staged import SqliteStaged
from relay.store.staging import ROW_BYTES, Staging, _text
from tests.relay.store.memory import MemoryStaged

if TYPE_CHECKING:  # it imports psycopg
    from tests.relay.store.in_postgres import Stores

Opening = Callable[[Path], StagedTables]


@pytest.fixture
def opened(home: str, request: pytest.FixtureRequest) -> Opening:
    """Opens the tables of a directory."""
    if home == "postgres":
        stores: Stores = request.getfixturevalue("stores")
        return lambda directory: stores.staged(directory)
    return SqliteStaged.open if home == "sqlite" else MemoryStaged.open


@pytest.fixture
def staging(opened: Opening, tmp_path: Path) -> Iterator[Staging]:
    area = Staging(opened(tmp_path))
    yield area
    area.close()


async def test_parts_come_back_in_the_order_of_keys_and_staging(staging: Staging) -> None:
    await staging.stage(("q", "2"), b"c")
    await staging.stage(("q", "1"), b"a")
    await staging.stage(("q", "1"), b"b")
    assert await staging.staged([("q", "1"), ("q", "2")]) == [b"a", b"b", b"c"]


async def test_a_key_of_which_nothing_is_here_is_refused(staging: Staging) -> None:
    await staging.stage(("q", "1"), b"a")
    with pytest.raises(Refused, match="nothing is staged under"):
        await staging.staged([("q", "1"), ("q",)])


async def test_discarding_takes_all_below_a_prefix_and_nothing_else(staging: Staging) -> None:
    for key in (("q", "1"), ("q", "1", "0"), ("q", "10"), ("qq",)):
        await staging.stage(key, b"x")
    await staging.discard(("q", "1"))
    assert await staging.staged([("q", "10"), ("qq",)]) == [b"x", b"x"]
    assert staging.statistics().keys == 2
    await staging.discard(("q",), ("nothing",))
    assert staging.statistics().keys == 1
    assert staging.statistics().bytes == len(_text(("qq",))) + 1 + ROW_BYTES


async def test_a_key_begins_anew_after_it_was_discarded(staging: Staging) -> None:
    await staging.stage(("q",), b"old")
    await staging.discard(("q",))
    await staging.stage(("q",), b"new")
    assert await staging.staged([("q",)]) == [b"new"]


async def test_nothing_comes_in_below_a_closed_key_and_beside_it_it_does(staging: Staging) -> None:
    for run in ("1", "10", "2"):
        await staging.stage(("q", "0", run, "+"), b"x")
    await staging.discard(("q", "0"), close=("q", "0", "1"))
    assert staging.statistics().keys == 0
    for late in (("q", "0", "1"), ("q", "0", "1", "+"), ("q", "0", "1", "+", "x")):
        with pytest.raises(Refused, match="nothing more is staged"):
            await staging.stage(late, b"x")
    for other in (("q", "0", "10", "+"), ("q", "0"), ("q",)):
        await staging.stage(other, b"x")
    assert staging.statistics().keys == 3


async def test_closed_keys_are_bounded(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.store.staging.CLOSED", 2)
    for run in "123":
        await staging.discard(("q",), close=("q", run))
    await staging.stage(("q", "1"), b"x")
    for late in "23":
        with pytest.raises(Refused, match="nothing more is staged"):
            await staging.stage(("q", late), b"x")


async def test_it_survives_a_restart_and_keeps_count(opened: Opening, tmp_path: Path) -> None:
    area = Staging(opened(tmp_path))
    await area.stage(("q",), b"abc")
    area.close()
    limit = 3 + 3 + ROW_BYTES
    again = Staging(opened(tmp_path), limit=limit)
    assert await again.staged([("q",)]) == [b"abc"]
    with pytest.raises(
        Refused, match=f"{limit + 5 + ROW_BYTES} bytes staged, the limit is limits.staged_bytes={limit}"
    ):
        await again.stage(("r",), b"de")
    await again.discard(("q",))
    await again.stage(("r",), b"de")
    again.close()


async def test_what_is_old_is_purged(staging: Staging) -> None:
    await staging.stage(("q",), b"abc")
    staging.purge(60.0)
    assert staging.statistics().parts == 1
    staging.purge(-60.0)
    assert staging.statistics() == type(staging.statistics())(0, 0, 0, staging.statistics().limit)


async def test_what_is_old_goes_while_it_runs(opened: Opening, tmp_path: Path) -> None:
    area = Staging(opened(tmp_path), kept=0.05)
    await area.stage(("q",), b"abc")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(area.run)
        with trio.fail_after(10):
            while area.statistics().bytes:  # noqa: ASYNC110  # there is nothing to be told by
                await trio.sleep(0.005)
        nursery.cancel_scope.cancel()
    area.close()


async def test_keys_count_so_that_many_empty_parts_come_to_the_limit(opened: Opening, tmp_path: Path) -> None:
    area = Staging(opened(tmp_path), limit=10 * ROW_BYTES)
    with pytest.raises(Refused, match=r"the limit is limits\.staged_bytes"):
        for number in range(10):
            await area.stage(("q" * 5, str(number)), b"")
    assert 1 < area.statistics().parts < 10
    area.close()


async def test_many_can_stage_at_once(staging: Staging) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(staging.stage, ("q", str(number % 4)), bytes([number]))
    parts = await staging.staged([("q", str(number)) for number in range(4)])
    assert sorted(parts) == [bytes([number]) for number in range(20)]


texts = st.text(alphabet="a\0\1\xff", max_size=3)


@given(st.lists(texts, max_size=3).map(tuple), st.lists(texts, max_size=3).map(tuple))
def test_bytes_of_keys_begin_alike_exactly_if_the_keys_do(
    one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    assert _text(one).startswith(_text(other)) == (one[: len(other)] == other)
    inside = _text(other) <= _text(one) < _text(other) + b"\xff"
    assert inside == (one[: len(other)] == other)


class Purse:
    """``relay.store.staging.Payer``: counts what is taken and given back."""

    def __init__(self) -> None:
        self.owes = 0

    def reserve(self, _what: str, amount: int) -> None:
        self.owes += amount

    def release(self, _what: str, amount: int) -> None:
        self.owes -= amount


async def test_a_key_is_another_one_for_each_stager(staging: Staging) -> None:
    for by in ("token:a", "token:b", "token:a/x", "token:ab"):
        await staging.stage(("q", "1"), by.encode(), by)
    assert await staging.staged([("q", "1")], "token:a") == [b"token:a", b"token:a/x"]
    assert await staging.staged([("q", "1")], "token:a/x") == [b"token:a/x"]
    await staging.discard(("q",), close=("q", "1"), by="token:a")
    for by in ("token:a", "token:a/x"):
        with pytest.raises(Refused, match="not-staged"):
            await staging.staged([("q", "1")], by)
        with pytest.raises(Refused, match="closed"):
            await staging.stage(("q", "1"), b"late", by)
    assert await staging.staged([("q", "1")]) == [b"token:ab", b"token:b"], "the daemon itself sees all"
    await staging.stage(("q", "1"), b"more", "token:b")
    assert await staging.staged([("q", "1")], "token:b") == [b"token:b", b"more"]


@pytest.mark.parametrize("key", [("a", "\2b"), ("a", ""), ("a\0", "\1"), ("\xff",)])
async def test_no_key_reads_as_one_with_a_stager(staging: Staging, key: tuple[str, ...]) -> None:
    await staging.stage(key, b"whole")
    with pytest.raises(Refused, match="not-staged"):
        await staging.staged([key], "token:b")
    with pytest.raises(Refused, match="not-staged"):
        await staging.staged([key[:1] if len(key) > 1 else ("a",)])
    assert await staging.staged([key]) == [b"whole"]


async def test_who_pays_gets_back_what_another_one_of_its_token_discards(staging: Staging) -> None:
    task, stranger = Purse(), Purse()
    await staging.stage(("q", "1"), b"x", "token:a/task", task)
    await staging.stage(("q", "1"), b"x", "token:b", stranger)
    assert task.owes == stranger.owes > 0
    await staging.discard(("q",), by="token:a")
    assert (task.owes, stranger.owes > 0) == (0, True)


class _Payer:
    def __init__(self) -> None:
        self.bytes = 0

    def reserve(self, _what: str, count: int) -> None:
        self.bytes += count

    def release(self, _what: str, count: int) -> None:
        self.bytes -= count


async def test_many_small_parts_are_noted_together_for_their_payer(opened: Opening, tmp_path: Path) -> None:
    staging, one, other = Staging(opened(tmp_path)), _Payer(), _Payer()
    for _ in range(200):
        await staging.stage(("k", "a"), b"x", "", one)
    await staging.stage(("k", "b"), b"x" * 100, "", other)
    assert sum(map(len, staging._paid.values())) < 50, "not one for each part"
    assert one.bytes > 200 and other.bytes > 100
    await staging.discard(("k", "a"))
    assert (one.bytes, other.bytes > 100) == (0, True)
    await staging.discard(("k",))
    assert (other.bytes, staging._paid) == (0, {})
    staging.close()


async def test_a_payer_has_back_what_was_refused_or_is_too_old(opened: Opening, tmp_path: Path) -> None:
    staging, payer = Staging(opened(tmp_path), limit=1000, kept=0.0), _Payer()
    await staging.stage(("k",), b"x" * 300, "", payer)
    before = payer.bytes
    with pytest.raises(Refused):
        await staging.stage(("k",), b"x" * 3000, "", payer)
    with pytest.raises(Refused):
        await staging.stage(("other",), b"x" * 3000, "", payer)
    assert (payer.bytes, len(staging._paid)) == (before, 1)
    staging._give_back_old(time.time() + 1)
    assert (payer.bytes, staging._paid) == (0, {})
    staging.close()
