"""Groups of turns wait for PostgreSQL in a thread; each is accepted once, in order, once it is there."""

from __future__ import annotations

from functools import partial

import pytest
import trio

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from relay.log.writer import GroupCommit
from relay.store.errors import LogFenced
from tests.postgres.servers import Servers
from tests.relay.log.histories import epoch, flight
from tests.relay.store.postgres.leaders import leaders, numbers

SOON = 60


def submit(commits: GroupCommit, accepted: list[int], *numbers: int) -> None:
    for number in numbers:
        commits.submit(epoch(number, flight(number)), lambda done: accepted.append(done.number))


@pytest.mark.slow
async def test_a_database_that_is_away_is_waited_for_while_the_loop_goes_on(servers: Servers) -> None:
    server = servers.new().start()
    accepted: list[int] = []
    with leaders(server.url("test")) as (one, _), trio.fail_after(SOON):
        log = one.log()
        commits = GroupCommit(log)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commits.run)
            submit(commits, accepted, 1)
            await commits.wait_durable(1)
            server.kill()
            submit(commits, accepted, 2)
            while one.writer.away_since is None:  # noqa: ASYNC110  # a thread finds it out
                await trio.sleep(0.005)
            submit(commits, accepted, *range(3, 40))
            assert accepted == [1] and commits.durable == 1
            await trio.to_thread.run_sync(server.start)
            await commits.wait_durable(39)
            await commits.close()
        assert accepted == numbers(log) == [*range(1, 40)]


async def test_a_leader_that_was_fenced_accepts_nothing_more(postgres_url: str) -> None:
    accepted: list[int] = []
    with leaders(postgres_url, postgres_url) as (old, new, _), trio.fail_after(SOON):
        commits = GroupCommit(old.log())
        submit(commits, accepted, 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(expect_fenced, commits))
            await commits.wait_durable(1)
            assert new.take() is not None
            submit(commits, accepted, 2, 3)
            with pytest.raises(LogFenced):
                await commits.wait_durable(3)
        with pytest.raises(LogFenced):
            submit(commits, accepted, 4)
        assert accepted == numbers(new.log()) == [1]


async def expect_fenced(commits: GroupCommit) -> None:
    with pytest.raises(LogFenced):
        await commits.run()


@pytest.mark.slow
async def test_giving_up_ends_the_wait_for_a_database_that_is_away(servers: Servers) -> None:
    server = servers.new().start()
    accepted: list[int] = []
    with leaders(server.url("test")) as (one, _), trio.fail_after(SOON):
        commits = GroupCommit(one.log())
        server.kill()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_fenced, commits)
            submit(commits, accepted, 1)
            while one.writer.away_since is None:  # noqa: ASYNC110  # a thread finds it out
                await trio.sleep(0.005)
            one.writer.abandon()
        assert accepted == []
