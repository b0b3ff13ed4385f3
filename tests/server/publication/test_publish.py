"""What bulk writers stage is published once, by whoever has the writer, and not without bounds."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import ExpectationFailed, Record, Refused, RemoteSpace, absent, exactly, unchanged
from dataspace.client.bulk.packed import PackedColumns
from dataspace.kernel.actions import ASSERT
from dataspace.kernel.expectations import Expectation
from dataspace.kernel.limits import SpaceLimits
from dataspace.wire import packets as p
from index.patterns.text import parse_pattern
from index.values.values import Map, Value
from server.config.model import Limits
from server.config.principals import Quotas
from tests.server.peers import Peer, fact, turn

BY = parse_pattern("q($k, _)")


async def stage(space: RemoteSpace, key: str, *numbers: int) -> None:
    operations = tuple([("assert", Record("n", number)) for number in numbers])
    await space.request("stage", Map({"key": (key,), "operations": operations}))


async def publish(
    space: RemoteSpace, key: str, client: str, sequence: int, *, exclusive: bool = True
) -> object:
    request = {
        "keys": ((key,),),
        "owner": "w",
        "client": client,
        "sequence": sequence,
        "exclusive": exclusive,
    }
    return await space.request("publish", Map(request))


async def test_whoever_began_last_has_the_writer(url: str) -> None:
    async with dataspace.connect(url) as space:
        for number, client in ((1, "a"), (2, "b")):
            await stage(space, client, number)
            await publish(space, client, client, 1)
        await stage(space, "a", 3)
        with pytest.raises(Refused, match="writer 'w' has been written to by b since epoch 2"):
            await publish(space, "a", "a", 2)
        assert await publish(space, "a", "a", 1) == 1, "what was published before is answered as ever"
        await stage(space, "c", 4)
        await publish(space, "c", "c", 1, exclusive=False)
        await stage(space, "b", 5)
        await publish(space, "b", "b", 2)
        assert sorted(await space.matches("n($)")) == [(1,), (2,), (4,), (5,)]


async def test_operations_may_come_with_the_publication_between_what_was_staged(url: str) -> None:
    async with dataspace.connect(url) as space:
        await stage(space, "a", 1)
        await stage(space, "b", 3)
        inline = PackedColumns("assert", "n", [[2]], 1).packed()
        told = Map({"keys": (("a",), inline, ("b",)), "owner": "w", "client": "c", "sequence": 1})
        assert [await space.request("publish", told) for _ in range(2)] == [1, 1]
        async with space.observe("n($)", after=0, upto=1) as seen:
            epoch = await seen.next_epoch()
        assert epoch is not None
        assert list(epoch.added) == [(1,), (2,), (3,)]


async def test_a_publication_happens_only_if_what_it_expects_holds_in_its_own_epoch(url: str) -> None:
    async def put(sequence: int, number: int, *expect: Expectation) -> object:
        rows = PackedColumns("assert", "q", [[1], [number]], 1).packed()
        told = {"keys": (rows,), "owner": "w", "client": "c", "sequence": sequence, "by": BY}
        expected = tuple([each.packed() for each in expect])
        return await space.request("publish", Map({**told, "expect": expected}))

    async with dataspace.connect(url) as space:
        epoch = await put(1, 1, absent("q(_, _)"))
        assert await put(1, 1, absent("q(_, _)")) == epoch, "it has happened, and is judged no more"
        with pytest.raises(ExpectationFailed, match="found") as failed:
            await put(2, 2, absent("nothing()"), exactly("q(1, $n)", [(2,)]))
        assert (failed.value.number, failed.value.rows, failed.value.count) == (2, [(1,)], 1)
        await put(2, 2, exactly("q(1, $n)", [(1,)]), unchanged("q(1, _)", since=epoch))  # type: ignore[arg-type]
        assert await space.matches("q(1, $)") == [(2,)]

        outcomes: list[object] = []

        async def race(number: int) -> None:
            try:
                rows = PackedColumns("assert", "q", [[1], [number]], 1).packed()
                told = {"keys": (rows,), "owner": "w", "client": f"r{number}", "sequence": 1, "by": BY}
                told["expect"] = (exactly("q(1, $n)", [(2,)]).packed(),)
                outcomes.append(await space.request("publish", Map(told)))
            except ExpectationFailed:
                pass

        async with trio.open_nursery() as nursery:
            for number in range(10, 26):
                nursery.start_soon(race, number)
        assert len(outcomes) == 1, "of those that expect the same one alone happens"
        for wrong in (1, ((9, "q"),), (absent("q()").packed(), 1)):
            with pytest.raises(Refused, match=r"malformed|bad-request"):
                await space.request(
                    "publish", Map({"keys": (), "owner": "w", "client": "c", "sequence": 9, "expect": wrong})
                )


async def test_what_a_session_of_the_same_owner_changes_is_known_to_the_next_publication(url: str) -> None:
    async def put(sequence: int, *numbers: int) -> None:
        rows = PackedColumns("assert", "p", [[1] * len(numbers), list(numbers)], len(numbers)).packed()
        told = {"keys": (rows,), "owner": "w", "client": "c", "sequence": sequence}
        await space.request("publish", Map({**told, "by": parse_pattern("p($k, _)")}))

    async with dataspace.connect(url) as space, dataspace.connect(url, owner="w") as other:
        await put(1, 0)
        await other.assert_(Record("p", 1, 7))
        await put(2, 1)
        assert await space.matches("p(1, $)") == [(1,)]


@pytest.mark.parametrize("kept", [None, "p($k, _)"])
async def test_a_session_and_a_writer_of_one_name_claim_side_by_side(url: str, kept: str | None) -> None:
    """Each numbers its claims upwards, and neither comes upon what the other has claimed meanwhile."""
    by = None if kept is None else parse_pattern(kept)
    async with dataspace.connect(url, owner="w") as space:
        for number in range(1, 4):
            claim = await space.assert_(Record("n", number))
            rows = PackedColumns("assert", "p", [[number, -number], [0, 0]], 2).packed()
            told = {"keys": (rows,), "owner": "w", "client": "c", "sequence": number, "by": by}
            await space.request("publish", Map(told))
        await space.retract(claim)
        assert await space.matches("n($)") == [(1,), (2,)]
        assert len(await space.matches("p($, _)")) == 6


@pytest.mark.parametrize("rubbish", [b"", b"\xc1", PackedColumns("upsert", "n", [[2]], 1).packed()])
async def test_what_comes_with_the_publication_and_means_nothing_is_refused(url: str, rubbish: bytes) -> None:
    async with dataspace.connect(url) as space:
        await stage(space, "a", 1)
        told = Map({"keys": (("a",), rubbish), "owner": "w", "client": "c", "sequence": 1})
        with pytest.raises(Refused, match=r"no operations|malformed|no value"):
            await space.request("publish", told)
        assert await space.matches("n($)") == []


@pytest.mark.parametrize("space_limits", [SpaceLimits(actions_per_publication=3)])
async def test_a_publication_is_read_up_to_its_limit_only(url: str) -> None:
    async with dataspace.connect(url) as space:
        await stage(space, "a", 1, 2)
        await stage(space, "a", 3, 4)
        with pytest.raises(
            Refused, match=r"publication of 4 actions or more, the limit is limits.actions_per_publication=3"
        ):
            await publish(space, "a", "a", 1)
        assert await space.matches("n($)") == []


@pytest.mark.parametrize("space_limits", [SpaceLimits(actions_per_publication=3)])
async def test_a_publication_takes_the_place_of_any_number_of_facts(url: str) -> None:
    """They came in many publications: that these are ended by one is no reason to refuse it."""
    async with dataspace.connect(url) as space:
        for at, start in enumerate(range(0, 12, 3)):
            await stage(space, f"k{at}", *range(start, start + 3))
            await publish(space, f"k{at}", "a", at + 1)
        assert len(await space.matches("n($)")) == 12
        await stage(space, "whole", 1, 100)
        whole = {"keys": (("whole",),), "owner": "w", "client": "a", "sequence": 9, "replace": True}
        await space.request("publish", Map(whole))
        assert {n for (n,) in await space.matches("n($)")} == {1, 100}
        for start in range(0, 12, 2):
            async with space.turn() as turn:
                for n in range(start, start + 2):
                    turn.assert_(Record("q", "a", n), owner="w")
        await space.put(Record("q", "a", 7), owner="w")
        assert await space.matches("q($, $)") == [("a", 7)]


@pytest.mark.parametrize("quotas", [Quotas(actions_per_publication=3)])
async def test_a_publication_is_read_up_to_the_quota_of_its_bearer(url: str) -> None:
    async with dataspace.connect(url) as space:
        await stage(space, "a", 1, 2)
        await publish(space, "a", "a", 1)
        await stage(space, "a", 3, 4)
        await stage(space, "a", 5, 6)
        with pytest.raises(
            Refused,
            match=r"4 actions or more in a publication of address:127\.0\.0\.1, "
            r"the limit is quota\.actions_per_publication=3 of each principal",
        ):
            await publish(space, "a", "a", 2)
        assert sorted(await space.matches("n($)")) == [(1,), (2,)]


@pytest.mark.parametrize("limits", [Limits(staged_seconds=0.05)])
async def test_what_nobody_publishes_in_time_is_dropped_while_the_daemon_runs(
    url: str, tmp_path: Path
) -> None:
    async with dataspace.connect(url) as space:
        await stage(space, "a", 1)
        with contextlib.closing(sqlite3.connect(tmp_path / "staged.sqlite")) as file, trio.fail_after(30):
            while file.execute("SELECT count(*) FROM staged").fetchone()[0]:  # noqa: ASYNC110  # nobody tells
                await trio.sleep(0.01)
        with pytest.raises(Refused, match="nothing is staged under"):
            await publish(space, "a", "a", 1)


@pytest.mark.parametrize("expected", [(), (absent(Record("nothing")).packed(),) * 8])
@pytest.mark.parametrize("is_turn_first", [True, False])
async def test_turns_and_publications_under_the_same_numbers_are_in_their_order(
    url: str, is_turn_first: bool, expected: tuple[tuple[Value, ...], ...]
) -> None:
    """The second comes at each step of the first: eight expectations make a turn wait, and rows on disk a
    publication."""
    async with Peer(url) as acting, Peer(url) as publishing:
        await acting.greet("w")
        await publishing.greet("other")
        for steps in range(60):
            numbers = [2 * steps + 1, 2 * steps + 2]
            acted, published = numbers if is_turn_first else reversed(numbers)
            staged = Map({"key": ("k",), "operations": (("assert", Record("n", published)),)})
            await publishing.say(p.Request(1, "stage", staged))
            assert isinstance(await publishing.hear(), p.Answer)
            told = Map({"keys": (("k",),), "owner": "w", "client": "w", "sequence": published})
            action = turn(acted, (ASSERT, acted, fact(acted)))._replace(expected=expected)
            packets: list[tuple[Peer, p.Packet]] = [
                (acting, action),
                (publishing, p.Request(2, "publish", told)),
            ]
            for peer, packet in packets if is_turn_first else reversed(packets):
                await peer.say(packet)
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
            epochs: dict[int, int] = {}
            for number, heard in ((acted, await acting.hear()), (published, await publishing.hear())):
                match heard:
                    case p.Accepted(_, (epoch,)) | p.Answer(_, int(epoch)):
                        epochs[number] = epoch
                    case _:
                        assert isinstance(heard, p.Refusal | p.Denied)
                        assert heard.code == "not-applied"
            assert numbers[1] in epochs
            assert sorted(epochs) == sorted(epochs, key=epochs.__getitem__), (steps, epochs)
