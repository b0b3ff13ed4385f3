"""Programs as the guide writes them, for trio and for asyncio: each call that the guide shows, without any
``except`` for faults.

A program returns how many messages ``sent(TAG, n)`` it has sent, numbered from 0 on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import dataspace
from dataspace import ExpectationFailed, Record, absent
from tests.survival.sites import TTL, Seen, Site


async def facts(at: Site) -> int:
    """Assert, observe, turn, asserting, matches, send, sync, retract."""
    async with dataspace.connect(at.urls, **at.options) as space:
        alice = await space.assert_(Record("present", at.tag, "Alice"))
        seen = Seen()
        async with space.observe(at.pattern("present", "$who")) as changes:
            seen.note(await anext(changes))
            async with space.turn() as turn:
                ben = turn.replace(alice, Record("present", at.tag, "Ben"))
                turn.send(Record("present", at.tag, "hi"))
            async for change in changes:
                seen.note(change)
                if seen == Seen({"Ben"}, ["hi"]):
                    break
        async with space.asserting(Record("busy", at.tag)):
            assert await space.matches(at.pattern("busy")) == [()] or not at.grace
        await space.send(Record("sent", at.tag, 0))
        await space.sync()
        await space.retract(ben)
        assert await space.matches(at.pattern("present", "$who")) == []
    return 1


async def turns(at: Site) -> int:
    """Turns with expectations, puts and withdrawals, of a durable owner; a fact under a lease."""
    async with dataspace.connect(at.urls, **at.options, lease=TTL) as space:
        await space.assert_(Record("here", at.tag))
        for attempt in range(2):
            try:
                async with space.turn(expect=[absent(at.pattern("new"))]) as turn:
                    turn.assert_(Record("new", at.tag), owner="people")
                    turn.send(Record("sent", at.tag, 0))
            except ExpectationFailed as failure:
                assert (attempt, failure.number) == (1, 1)
        await space.put("config", at.tag, 7, owner="people")
        await space.put("config", at.tag, 9, owner="people")
        claim = await space.assert_(Record("kept", at.tag, 1), owner="people")
        claim = await space.replace(claim, Record("kept", at.tag, 2))
        assert await space.matches(at.pattern("config", "$n")) == [(9,)]
        assert await space.matches(at.pattern("kept", "$n")) == [(2,)]
        await space.retract(claim)
        draft = space.draft()
        draft.send(Record("sent", at.tag, 1))
        ticket = await space.submit(draft)
        await space.withdraw(at.pattern("config", "_"), owner="people")
        await ticket.wait()
        assert await space.matches(at.pattern("kept", "$n")) == []
        assert await space.matches(at.pattern("config", "$n")) == []
        assert await space.matches(at.pattern("here")) == [()]
    return 2


async def reads(at: Site) -> int:
    """The past and the present, in all ways of reading."""
    async with dataspace.connect(at.urls, **at.options, read="any") as space:
        before = await space.sync()
        for number in range(3):
            await space.send(Record("sent", at.tag, number))
        claim = await space.assert_(Record("here", at.tag, 1), owner="readers")
        now = await space.sync()
        pattern, read = at.pattern("sent", "$n"), list[object]()
        async with space.observe(pattern, after=before, upto=now, durable=True) as changes:
            async for change in changes:
                read.append(change.captures)
        assert read == [(0,), (1,), (2,)]
        read.clear()
        async with space.observe(pattern, after=before, upto=now, policy="wait") as changes:
            await changes.each(lambda change: read.append(change.captures))
        assert read == [(0,), (1,), (2,)]
        async with space.observe(pattern, after=before, policy="drop", window=2) as changes:
            read.clear()
            async for epoch in changes.epochs():
                read += epoch.messages
                if (2,) in read:
                    break
        assert read == [(0,), (1,), (2,)]
        here = at.pattern("here", "$n")
        assert await space.first(here) == (1,)
        assert [*await space.query(here)] == [(1,)]
        await space.retract(claim)
        assert [*await space.query(here, as_of=now)] == [(1,)]
        assert await space.epoch_at(datetime.now(UTC)) > before
        assert (await space.status())["epoch"]
    return 3


async def jobs(at: Site) -> int:
    """Jobs are done in the turn of their result, one by one, in a block, or not at once."""
    async with dataspace.connect(at.urls, **at.options) as space:
        async with space.consume(at.pattern("job", "$id"), group=f"w-{at.tag}", in_flight=2) as members:
            for number in range(4):
                await space.send(Record("job", at.tag, number))
            done = 0
            async for job in members:
                with at.may_lose_jobs():
                    if job["id"] == 0:
                        async with space.turn(done=[job]) as turn:
                            turn.assert_(Record("result", at.tag, job["id"]), owner="results")
                            turn.send(Record("sent", at.tag, 0))
                    elif job["id"] == 1:
                        await job.extend()
                        await job.done()
                    elif job["id"] == 2 and job.attempt == 1:
                        await job.again()
                        continue
                    else:
                        async with job:
                            pass
                    done += 1
                if done == 4:
                    break
        assert await space.matches(at.pattern("result", "$n")) == [(0,)]
    return 1


async def holds(at: Site) -> int:
    """A fact under its own lease, and one that is renewed for the length of a block."""
    async with dataspace.connect(at.urls, **at.options) as space:
        fact = at.pattern("held", "$n")
        hold = await space.hold(Record("held", at.tag, 1), ttl=TTL, name=at.tag)
        await hold.put(Record("held", at.tag, 2))
        await hold.renew()
        assert await space.matches(fact) == [(2,)]
        await hold.release()
        async with await space.hold(Record("held", at.tag, 3), ttl=TTL, renew=True):
            assert await space.matches(fact) == [(3,)]
    return 0


async def locks(at: Site) -> int:
    """A turn under a lock, and one as a leader."""
    async with dataspace.connect(at.urls, **at.options) as space:
        async with space.lock(at.tag, ttl=TTL) as lock:
            async with space.turn(expect=[lock.held]) as turn:
                turn.send(Record("sent", at.tag, 0))
            lock.check()
        async with space.elect(("lead", at.tag), "me", ttl=TTL) as lock:
            assert await space.matches(f'leader(["lead", "{at.tag}"], $who)') == [("me",)]
            async with space.turn(expect=[lock.held]) as turn:
                turn.send(Record("sent", at.tag, 1))
    return 2


async def topics(at: Site) -> int:
    """A durable topic, whose publication may be away."""
    async with dataspace.connect(at.urls, **at.options) as space:
        async with space.publish(at.tag, durable=True, away=TTL) as publication:
            async with space.subscribe(at.tag, as_of=0) as epochs:
                await publication.send("a")
                await publication.advance(1)
                assert (await anext(epochs)).items == ("a",)
                await publication.finish("b", then=2)
                await publication.flush()
                assert (await anext(epochs)).items == ("b",)
        assert [epoch.items async for epoch in space.completed(at.tag)] == [("a",), ("b",)]
    return 0


Program = Callable[[Site], Awaitable[int]]

PROGRAMS: Final[dict[str, Program]] = {
    program.__name__: program for program in (facts, turns, reads, jobs, holds, locks, topics)
}
