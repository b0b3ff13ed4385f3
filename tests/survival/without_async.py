"""The programs of ``with_async`` for the blocking client, and one for the client of bulk reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from dataspace import Broken, ExpectationFailed, Record, Refused, absent, connect_blocking
from dataspace.client.bulk.client import BulkClient
from index.patterns.text import parse_pattern
from tests.survival.sites import TTL, WAIT, Seen, Site


def facts(at: Site) -> int:
    """Assert, observe, turn, asserting, matches, send, sync, retract."""
    with connect_blocking(at.urls, **at.options) as space:
        alice = space.assert_(Record("present", at.tag, "Alice"))
        seen = Seen()
        with space.observe(at.pattern("present", "$who")) as changes:
            seen.note(next(iter(changes)))
            with space.turn() as turn:
                ben = turn.replace(alice, Record("present", at.tag, "Ben"))
                turn.send(Record("present", at.tag, "hi"))
            for change in changes:
                seen.note(change)
                if seen == Seen({"Ben"}, ["hi"]):
                    break
        with space.asserting(Record("busy", at.tag)):
            assert space.matches(at.pattern("busy")) == [()] or not at.grace
        space.send(Record("sent", at.tag, 0))
        space.sync()
        space.retract(ben)
        assert space.matches(at.pattern("present", "$who")) == []
    return 1


def turns(at: Site) -> int:
    """Turns with expectations, puts and withdrawals, of a durable owner; and reads."""
    with connect_blocking(at.urls, **at.options) as space:
        before = space.sync()
        for attempt in range(2):
            try:
                with space.turn(expect=[absent(at.pattern("new"))]) as turn:
                    turn.assert_(Record("new", at.tag), owner="people")
                    turn.send(Record("sent", at.tag, 0))
            except ExpectationFailed as failure:
                assert (attempt, failure.number) == (1, 1)
        space.put("config", at.tag, 7, owner="people")
        assert space.first(at.pattern("config", "$n")) == (7,)
        space.withdraw(at.pattern("config", "_"), owner="people")
        assert [*space.query(at.pattern("config", "$n"))] == []
        read: list[object] = []
        with space.observe(at.pattern("sent", "$n"), after=before, upto=space.sync()) as changes:
            changes.each(lambda change: read.append(change.captures))
        assert read == [(0,)]
    return 1


def jobs(at: Site) -> int:
    """Jobs are done in the turn of their result, and in a block."""
    with connect_blocking(at.urls, **at.options) as space:
        with space.consume(at.pattern("job", "$id"), group=f"w-{at.tag}", in_flight=2) as members:
            for number in range(2):
                space.send(Record("job", at.tag, number))
            done = 0
            for job in members:
                with at.may_lose_jobs():
                    if job["id"] == 0:
                        with space.turn(done=[job]) as turn:
                            turn.assert_(Record("result", at.tag, job["id"]), owner="results")
                            turn.send(Record("sent", at.tag, 0))
                    else:
                        with job:
                            pass
                    done += 1
                if done == 2:
                    break
        assert space.matches(at.pattern("result", "$n")) == [(0,)]
    return 1


def leases(at: Site) -> int:
    """Holds, locks and elections."""
    with connect_blocking(at.urls, **at.options) as space:
        with space.hold(Record("held", at.tag, 1), ttl=TTL, renew=True) as hold:
            hold.put(Record("held", at.tag, 2))
            assert space.matches(at.pattern("held", "$n")) == [(2,)]
        with space.lock(at.tag, ttl=TTL) as lock, space.turn(expect=[lock.held]) as turn:
            turn.send(Record("sent", at.tag, 0))
        with space.elect(("lead", at.tag), "me", ttl=TTL):
            assert space.matches(f'leader(["lead", "{at.tag}"], $who)') == [("me",)]
    return 1


def topics(at: Site) -> int:
    """A durable topic, whose publication may be away."""
    with connect_blocking(at.urls, **at.options) as space:
        with space.publish(at.tag, durable=True, away=TTL) as publication:
            with space.subscribe(at.tag, as_of=0) as epochs:
                publication.finish("a", then=1)
                assert next(epochs).items == ("a",)
    return 0


BLOCKING: Final[dict[str, Callable[[Site], int]]] = {
    program.__name__: program for program in (facts, turns, jobs, leases, topics)
}


@contextmanager
def _beginning_again() -> Iterator[None]:
    """Lets a connection be lost, and a daemon be without its store: a client without an event loop does not
    wait for either to come back, so its program does."""
    try:
        yield
    except Broken:
        pass
    except Refused as refusal:
        if refusal.code != "store-away":
            raise


def bulk(at: Site) -> int:
    """Reads, and publishes what it has staged, under a number, so that it happens once."""
    while True:
        with _beginning_again(), BulkClient(at.urls, wait=WAIT, timeout=WAIT) as link:
            before = link.frontier().epoch
            link.discard((at.tag,))
            link.stage((at.tag, "0"), [("send", Record("sent", at.tag, 0))])
            link.publish([(at.tag, "0")], client=at.tag, sequence=1, owner="people")
            upto = link.frontier(before).epoch
            link.request("sync", {})
            list(link.changes(parse_pattern(at.pattern("sent", "$n")), after=0, upto=upto))
            list(link.columns(parse_pattern(at.pattern("sent", "$n")), after=before, upto=upto))
            link.acknowledge(at.tag, upto)
            link.forget(at.tag)
            return 1


BULK: Final[dict[str, Callable[[Site], int]]] = {"bulk": bulk}
