"""A fact under a lease of its own, from Python: kept without a connection, renewed or not."""

from __future__ import annotations

import pytest
import trio

import dataspace
from dataspace import Map, Record, Refused, RemoteSpace, UsageError
from tests.server.proxies import Proxy


async def _gone(witness: RemoteSpace, pattern: str) -> None:
    """Waits until nothing matches."""
    with trio.fail_after(20):
        async with witness.observe(pattern, quiet=True) as changes:
            left: set[object] = set()
            async for epoch in changes.epochs():
                left = (left | set(epoch.added)) - set(epoch.removed)
                if not left:
                    return


async def test_a_hold_outlasts_its_connection_and_ends_after_its_time(url: str) -> None:
    async with dataspace.connect(url) as witness:
        async with dataspace.connect(url) as space:
            held = await space.hold(Record("job", 7), ttl=1.5)
            assert held.epoch and held.owner.startswith("lease:1500:hold-")
        assert await witness.matches("job($n)") == [(7,)]
        await _gone(witness, "job(_)")


async def test_another_fact_takes_its_place_in_one_epoch(url: str) -> None:
    async with dataspace.connect(url) as witness, dataspace.connect(url) as space:
        async with witness.observe("job(7, $state)") as seen:
            held = await space.hold(Record("job", 7, "begun"), ttl=60)
            await held.put(Record("job", 7, "half"))
            await held.put(Record("job", 7, "half"))
            await held.release()
            changes = []
            async for epoch in seen.epochs():
                if epoch.added or epoch.removed:
                    changes.append(([*epoch.added], [*epoch.removed]))
                if not epoch.added and epoch.removed:
                    break
        assert changes == [([("begun",)], []), ([("half",)], [("begun",)]), ([], [("half",)])]
        await held.release()  # again, which does nothing


async def test_it_is_renewed_by_hand_by_itself_and_by_another_client_that_knows_its_name(url: str) -> None:
    async with dataspace.connect(url) as witness, dataspace.connect(url) as space:
        by_hand = await space.hold(Record("kept", "by hand"), ttl=3)
        await space.hold(Record("kept", "by itself"), ttl=3, renew=True)
        await space.hold(Record("kept", "by name"), ttl=3, name="shared")
        await space.hold(Record("kept", "not"), ttl=3)

        async def renew() -> None:
            while True:
                await by_hand.renew()
                async with dataspace.connect(url) as other:
                    await other.hold(Record("kept", "by name"), ttl=3, name="shared")
                await trio.sleep(0.3)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(renew)
            await _gone(witness, 'kept("not")')
            nursery.cancel_scope.cancel()
        kept = await witness.matches("kept($how)")
        assert sorted(kept) == [("by hand",), ("by itself",), ("by name",)]


async def test_what_has_ended_is_said_and_begins_anew(url: str) -> None:
    async with dataspace.connect(url) as witness, dataspace.connect(url) as space:
        held = await space.hold(Record("job", 7), ttl=0.3)
        await _gone(witness, "job(_)")
        with pytest.raises(Refused, match="no-lease"):
            await held.renew()
        assert held.reason
        await held.put(Record("job", 8))
        assert (await witness.matches("job($n)"), held.reason) == ([(8,)], "")


async def _end(url: str, held: dataspace.Hold) -> None:
    """Ends the lease of a hold, as an operator may, or a client that knows its name."""
    async with dataspace.connect(url) as other:
        await other.request("release", Map({"owner": held.owner}))


async def test_a_renewed_hold_that_ends_says_so_by_an_event(url: str) -> None:
    async with dataspace.connect(url) as space:
        held = await space.hold(Record("job", 7), ttl=0.6, renew=True)
        held.check()
        await _end(url, held)
        with trio.fail_after(10):
            await held.ended.wait()
        assert held.reason
        with pytest.raises(Refused, match=r"no-lease: the hold .* has ended"):
            held.check()
        await held.put(Record("job", 8))  # begins anew, and is renewed again
        held.check()
        await _end(url, held)
        with trio.fail_after(10):
            await held.ended.wait()


async def test_a_block_is_cancelled_once_its_hold_has_ended(url: str) -> None:
    async with dataspace.connect(url) as space:
        with trio.fail_after(10), pytest.raises(Refused, match="no-lease"):
            async with await space.hold(Record("job", 7), ttl=0.6, renew=True) as held:
                await _end(url, held)
                await trio.sleep_forever()
        with pytest.raises(Refused, match="no-lease"):
            async with held:
                pass


@pytest.mark.parametrize("how", ["end", "error", "released"])
async def test_the_end_of_a_block_releases_the_hold(url: str, how: str) -> None:
    async with dataspace.connect(url) as space:
        try:
            async with await space.hold(Record("job", 7), ttl=60, renew=True) as held:
                assert await space.matches("job($n)") == [(7,)]
                if how == "error":
                    raise ZeroDivisionError
                if how == "released":
                    await held.release()
        except ZeroDivisionError:
            pass
        assert await space.matches("job($n)") == []


@pytest.mark.slow
async def test_a_hold_is_renewed_on_after_a_daemon_that_was_away_for_longer_than_calls_wait(
    url: str, proxy: Proxy
) -> None:
    async with dataspace.connect(url) as witness, dataspace.connect(proxy.url, timeout=0.2) as space:
        held = await space.hold(Record("job", 1), ttl=6, renew=True)
        proxy.refusing = True
        proxy.cut()
        await trio.sleep(2.3)  # one renewal is due, and in vain
        proxy.refusing = False
        await trio.sleep(4.5)
        assert (await witness.matches("job($n)"), held.ended.is_set()) == ([(1,)], False)


async def test_a_lost_connection_changes_nothing(url: str, proxy: Proxy) -> None:
    async with dataspace.connect(url) as witness, dataspace.connect(proxy.url) as space:
        held = await space.hold(Record("job", 1), ttl=60)
        proxy.cut()
        await held.put(Record("job", 2))
        proxy.cut()
        await held.renew()
        assert await witness.matches("job($n)") == [(2,)]


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), 86_401])
async def test_a_time_that_makes_no_sense_is_refused(url: str, ttl: float) -> None:
    async with dataspace.connect(url) as space:
        with pytest.raises(UsageError, match="ttl is in seconds, from 0"):
            await space.hold(Record("job", 1), ttl=ttl)


async def test_the_blocking_client_holds_as_well(url: str) -> None:
    def script() -> None:
        with dataspace.connect_blocking(url) as space:
            held = space.hold(Record("job", 1), ttl=60)
            assert held.put(Record("job", 2)) == held.epoch
            held.renew()
            assert space.matches("job($n)") == [(2,)]
            held.release()
            assert space.matches("job($n)") == [] and held.ended and held.reason
            with space.hold(Record("job", 3), ttl=60) as held:
                assert not held.ended
            assert space.matches("job($n)") == []
            with pytest.raises(Refused, match="no-lease"), space.hold(Record("job", 3), ttl=0.6) as held:
                space.request("release", Map({"owner": held.owner}))
                with pytest.raises(Refused, match="no-lease"):
                    held.renew()

    await trio.to_thread.run_sync(script)
