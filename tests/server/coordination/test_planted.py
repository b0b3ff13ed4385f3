"""The checker flags each mistake that a lock of this kind can have, and none where there is none.

Each scene is played with the lock as it is and with one mistake planted in it: two clients in this process,
the first behind a line that falls silent, or that ends at the daemon's side alone.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partialmethod
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
from dataspace import LockLost, Map, Record
from dataspace.client.locks import BELIEVED, Lock, Term
from dataspace.client.session.session import ClientSession
from dataspace.errors import Broken
from tests.model.locks import Belief, Grant, LockHistory, lock_violations
from tests.server.coordination.histories import Store, now
from tests.server.proxies import Proxy

TTL: Final = 0.4
STEP: Final = 0.02
Patch = pytest.MonkeyPatch


class Scene:
    """Two clients, and what is recorded of them."""

    def __init__(self, url: str, proxy: Proxy, folder: Path) -> None:
        self.url = url
        self.proxy = proxy
        self.history = LockHistory()
        self.store = Store(folder / "store")
        self.done = False
        self.begun = trio.Event()
        """Set when the first client knows that it holds the lock."""
        self.second = trio.Event()
        """The same for the second one."""
        self.asserts_anew = False

    async def hold(self, space: dataspace.RemoteSpace, me: str, *, until: Callable[[], bool]) -> None:
        """Holds the lock until it is lost, or no longer wanted."""
        began = now()
        try:
            async with space.lock("store", me, ttl=TTL) as lock:
                self.history.grants.append(Grant(me, lock.token, began, now()))
                (self.begun if me == "first" else self.second).set()
                while not until():
                    self.write(me, lock)
                    await trio.sleep(STEP)
        except (LockLost, Broken):
            if self.asserts_anew and me == "first":
                await self.second.wait()
                self.proxy.silent = False
                self.proxy.cut()
                await space.assert_(Record("lock", "store", me, "anew"))
                self.asserts_anew = False

    def write(self, me: str, lock: Lock) -> None:
        at = now()
        lock.check()
        self.history.beliefs.append(Belief(me, lock.token, at))
        self.store.write(me, lock.token)

    async def play(self, disturb: Callable[[Proxy], None]) -> list[str]:
        """The first client holds the lock and is disturbed; the second waits, and holds it after that."""
        async with (
            dataspace.connect(self.proxy.url, name="first", heartbeat=60) as first,
            dataspace.connect(self.url, name="second") as second,
        ):
            with trio.fail_after(20):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(lambda: self.hold(first, "first", until=lambda: self.done))
                    await self.begun.wait()
                    nursery.start_soon(self._second, second, nursery)
                    await second.first('contender("store", "second", _)')
                    disturb(self.proxy)
            self.proxy.silent = False
            self.proxy.cut()
        self.history.writes = self.store.writes()
        async with dataspace.connect(self.url) as space:
            upto = await space.sync()
            rows = 'lock("store", $who, $term)'
            async with space.observe(rows, after=0, upto=upto, quiet=True, durable=True) as past:
                async for epoch in past.epochs():
                    self.history.facts.append((epoch.number, list(epoch.added), list(epoch.removed)))
        return lock_violations(self.history)

    async def _second(self, space: dataspace.RemoteSpace, nursery: trio.Nursery) -> None:
        left = itertools.count()

        def is_enough() -> bool:
            return next(left) > 0.65 * TTL / STEP and not self.asserts_anew

        await self.hold(space, "second", until=is_enough)
        self.done = True
        nursery.cancel_scope.cancel()


@pytest.fixture
async def scene(url: str, proxy: Proxy, tmp_path: Path) -> AsyncIterator[Scene]:
    yield Scene(url, proxy, tmp_path)


def silence(proxy: Proxy) -> None:
    proxy.silent = True


@pytest.mark.slow
async def test_a_lock_without_a_mistake_passes(scene: Scene) -> None:
    assert await scene.play(silence) == []
    first, second = scene.history.grants
    assert (first.client, second.client) == ("first", "second") and first.token < second.token


def _never_checked(_self: Term, _what: str) -> None:
    """In place of the check: nothing."""


@pytest.mark.slow
async def test_time_that_is_counted_from_the_answer_is_flagged(scene: Scene, monkeypatch: Patch) -> None:
    """The answer to a renewal comes late, and it is the last: the daemon has counted for longer already."""
    renew, ttl = Term._renew, 4 * TTL
    monkeypatch.setattr("tests.server.coordination.test_planted.TTL", ttl)

    async def counted_from_the_answer(self: Term) -> bool:
        is_answered = await renew(self)
        if not scene.proxy.silent:
            scene.proxy.silent = True
            await trio.sleep(ttl / 2)
            self._renewed, self._until = self._clock(), self._clock() + BELIEVED * ttl
        return is_answered

    def second_as_it_is(self: Term) -> Awaitable[bool]:
        return counted_from_the_answer(self) if self._session.identity.name == "first" else renew(self)

    monkeypatch.setattr(Term, "_renew", second_as_it_is)
    assert _kinds(await scene.play(lambda _proxy: None)) == {"c"}


@pytest.mark.slow
async def test_a_check_that_is_skipped_is_flagged(scene: Scene, monkeypatch: Patch) -> None:
    monkeypatch.setattr(Term, "check", _never_checked)
    monkeypatch.setattr(Term, "on_lost", lambda _self, _call: None)
    assert _kinds(await scene.play(silence)) == {"c"}
    refused = [each.client for each in scene.history.writes if not each.accepted]
    assert "first" in refused, "the token is what is left, and does its work"


@pytest.mark.slow
async def test_a_claim_of_a_session_is_flagged_where_only_the_daemon_sees_its_end(
    scene: Scene, monkeypatch: Patch
) -> None:
    async def begin(self: Term) -> None:
        self._renewed, self._until = self._clock(), self._clock() + 60

    monkeypatch.setattr(Term, "begin", begin)
    monkeypatch.setattr(Term, "__init__", partialmethod(_of_owner, ""))
    assert _kinds(await scene.play(lambda proxy: proxy.reset_above())) == {"c"}


def _of_owner(self: Term, owner: str, session: ClientSession, seconds: float) -> None:
    """As ``Term``, of an owner that it shares with others."""
    init(self, session, seconds)
    vars(self).update(owner=owner, _about=Map({"owner": owner}))


init = Term.__init__


@pytest.mark.slow
async def test_a_claim_that_is_made_anew_on_return_is_flagged(scene: Scene) -> None:
    scene.asserts_anew = True
    assert "a" in _kinds(await scene.play(silence))


@pytest.mark.slow
async def test_a_token_of_the_client_s_own_is_flagged(scene: Scene, monkeypatch: Patch) -> None:
    counts: dict[int, itertools.count[int]] = {}

    def count(self: Lock, epoch: int) -> None:
        if epoch:
            own = counts.setdefault(id(self._session), itertools.count(1))
            vars(self)["token"] = next(own)
        else:
            vars(self)["token"] = 0

    monkeypatch.setattr(Lock, "token", property(lambda self: vars(self)["token"], count), raising=False)
    assert "b" in _kinds(await scene.play(silence))


@pytest.mark.slow
async def test_a_release_that_ends_the_claim_of_another_is_flagged(url: str, monkeypatch: Patch) -> None:
    """All holders have one lease: whoever comes late and releases it ends the claim of the holder."""
    monkeypatch.setattr(Term, "__init__", partialmethod(_of_owner, f"lease:{round(TTL * 1000)}:shared"))
    history = LockHistory()
    async with dataspace.connect(url, name="1") as one, dataspace.connect(url, name="2") as two:
        stale = Lock(one.session, "store", "first", TTL, announce=False)
        await stale.acquire()
        await one.request("release", stale._term._about)  # its time was over
        async with two.lock("store", "second", ttl=TTL) as lock:
            history.grants.append(Grant("second", lock.token, now(), now()))
            await stale.release()
            began = now()
            async with one.lock("store", "third", ttl=TTL) as third:
                history.grants.append(Grant("third", third.token, began, now()))
                await trio.sleep(STEP)
                at = now()
                lock.check()
                history.beliefs.append(Belief("second", lock.token, at))
    assert _kinds(lock_violations(history)) == {"c"}


def _kinds(found: list[str]) -> set[str]:
    return {each[0] for each in found}
