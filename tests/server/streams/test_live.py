"""A live map over real daemons is the fold of the log: while they are killed, followed, and forget."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import Map, Record, RemoteSpace
from dataspace.client.live import LiveMap
from tests.server.peers import fact
from tests.server.processes import DaemonProcess, follower, running, stand_by
from tests.server.streams.test_gaps import forgetful as forgetful  # a fixture

pytestmark = pytest.mark.slow

PATTERN = "temp($device, $celsius)"
SOON = 120
KILLS = 3

State = dict[Any, list[Any]]


class Writer:
    """Writes random turns under a durable owner, each once however often the daemon is killed."""

    def __init__(self, seed: int, most: int) -> None:
        self.rng = random.Random(seed)
        self.most = most
        """Facts of one key."""
        self.state: dict[str, dict[int, Any]] = {}

    async def write(self, space: RemoteSpace) -> None:
        rng = self.rng
        while True:
            async with space.turn() as turn:
                for key in {f"d{rng.randrange(6)}" for _ in range(rng.randrange(1, 4))}:
                    facts = self.state.setdefault(key, {})
                    new = rng.randrange(50)
                    keep = rng.randrange(self.most)
                    while len(facts) > keep:
                        turn.retract(facts.pop(next(iter(facts))))
                    if rng.random() < 0.8 and new not in facts:
                        facts[new] = turn.assert_(Record("temp", key, new), owner="writer")
                turn.send(Record("turn"))
            await trio.sleep(rng.random() * 0.01)


class Reader:
    """What a program sees of a live map: states, and the fold of the changes."""

    def __init__(self, temps: LiveMap[Any]) -> None:
        self.temps = temps
        self.fold = dict(temps)
        self.seen: list[tuple[int, State]] = [(temps.epoch, self.shown())]

    def shown(self) -> State:
        return {key: sorted(row.celsius for row in rows) for key, rows in self.temps.items()}

    async def read(self, rng: random.Random) -> None:
        while True:
            for key, old, new in await self.temps.changed():
                assert self.fold.get(key) == old
                if new is None:
                    del self.fold[key]
                else:
                    self.fold[key] = new
            assert self.fold == dict(self.temps)
            self.seen.append((self.temps.epoch, self.shown()))
            if rng.random() < 0.2:
                await trio.sleep(rng.random() * 0.2)


async def folded(space: RemoteSpace, newest: int) -> dict[int, State]:
    """The state after each epoch of the log."""
    state: dict[str, set[Any]] = {}
    states: dict[int, State] = {}
    async with space.observe(PATTERN, after=0, upto=newest, durable=True, policy="wait") as log:
        async for epoch in log.epochs():
            for key, celsius in epoch.removed:
                state[str(key)].remove(celsius)
            for key, celsius in epoch.added:
                state.setdefault(str(key), set()).add(celsius)
            states[epoch.number] = {key: sorted(held) for key, held in state.items() if held}
    return states


async def run(
    urls: list[str], seed: int, disturb: Callable[[random.Random], Any], *, most: int, **options: Any
) -> None:
    """Writes, reads and disturbs; then every state that was seen is that of the log."""
    rng = random.Random(seed)
    with trio.fail_after(SOON):
        async with dataspace.connect(urls, read="any") as space, dataspace.connect(urls) as writing:
            async with space.live(PATTERN, by="device", many=True, **options) as temps:
                reader, writer = Reader(temps), Writer(seed, most)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(reader.read, rng)
                    nursery.start_soon(writer.write, writing)
                    await disturb(rng)
                    enough = len(reader.seen) + 20
                    while len(reader.seen) < enough:  # noqa: ASYNC110  # what another task counts
                        await trio.sleep(0.01)
                    nursery.cancel_scope.cancel()
                newest = await writing.sync()
                await temps.at(newest)
                states = await folded(writing, newest)
                assert reader.shown() == states[max(states)]
                assert sorted(state for state in writer.state if writer.state[state]) >= sorted(temps)
                checked = 0
                for epoch, state in reader.seen:
                    if epoch in states:  # others were lost with the daemon, or have changed nothing here
                        assert state == states[epoch]
                        checked += 1
                assert checked > 10 and (temps.error is None)


@pytest.mark.torture
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("options", [{}, {"durable": True, "quiet": True}, {"pace": 0.05}], ids=str)
async def test_it_is_the_fold_of_the_log_while_the_daemon_is_killed(
    tmp_path: Path, most: int, options: dict[str, Any], seed: int = 1
) -> None:
    daemon = DaemonProcess(tmp_path / "data")

    async def disturb(rng: random.Random) -> None:
        for _ in range(KILLS):
            await trio.sleep(rng.random())
            await trio.to_thread.run_sync(daemon.kill)
            await trio.sleep(rng.random() * 0.3)
            await trio.to_thread.run_sync(daemon.start)

    with running(daemon):
        await run([daemon.url], seed + most, disturb, most=most, **options)


@pytest.mark.torture
async def test_it_is_read_at_a_follower_and_goes_on_over_take_overs(tmp_path: Path) -> None:
    first, second = DaemonProcess(tmp_path / "data"), stand_by(tmp_path / "data")

    async def disturb(rng: random.Random) -> None:
        leader, other = first, second
        for _ in range(2):
            await trio.sleep(0.3 + rng.random())
            await trio.to_thread.run_sync(leader.kill)
            await trio.sleep(1 + rng.random())
            leader.more = second.more
            await trio.to_thread.run_sync(leader.start)
            leader, other = other, leader

    with running(first, second):
        await run([first.url, second.url], 7, disturb, most=2, quiet=True)


async def test_a_follower_shows_what_this_program_wrote(tmp_path: Path) -> None:
    leader, reader = DaemonProcess(tmp_path / "data"), follower(tmp_path / "data")
    with running(leader, reader), trio.fail_after(SOON):
        async with (
            dataspace.connect(reader.url, read="any") as space,
            space.live("fact($n)", by="n", quiet=True) as facts,
        ):
            for number in range(20):
                claim = await space.assert_(fact(number))
                assert claim.epoch is not None
                await facts.at(claim.epoch)
                assert number in facts
                await facts.at(await space.send(Record("else")))


async def test_reading_what_was_written_needs_no_heartbeat(url: str) -> None:
    """An epoch without a change here is asked for."""
    async with dataspace.connect(url, heartbeat=1000) as space:
        async with space.live(PATTERN, by="device") as temps:
            with trio.fail_after(5):
                for _ in range(20):
                    epoch = await space.send(Record("else"))
                    await temps.at(epoch)
                    assert temps.epoch >= epoch and len(temps) == 0


async def test_the_past_is_complete_or_followed(url: str) -> None:
    async with dataspace.connect(url) as space:
        epochs = [await space.put("temp", "d1", n, owner="me") for n in range(5)]
        async with space.live(PATTERN, by="device", as_of=epochs[2]) as then:
            assert (then["d1"].celsius, then.epoch) == (2, epochs[2])
            with pytest.raises(dataspace.Closed, match="complete"):
                await then.changed()
            async with space.live(PATTERN, by="device", as_of=epochs[2], follow=True, quiet=True) as temps:
                await temps.at(epochs[4])
                assert temps["d1"].celsius == 4 and then["d1"].celsius == 2
                last = await space.put("temp", "d1", 9, owner="me")
                await temps.at(last)
                (change,) = await temps.changed()
                assert [row.celsius for row in (change.old, change.new) if row is not None] == [2, 9]


async def oldest(space: RemoteSpace) -> int:
    answer = await space.request("frontier", Map())
    assert isinstance(answer, Map) and isinstance(answer["oldest"], int)
    return answer["oldest"]


async def test_where_the_log_is_gone_it_has_the_difference(forgetful: Any) -> None:
    address, proxy = forgetful
    with trio.fail_after(60):
        async with (
            dataspace.connect(proxy.url) as space,
            dataspace.connect(address.replace("tcp:", "tcp://", 1)) as near,
            space.live(PATTERN, by="device") as temps,
        ):
            for n in range(3):
                await temps.at(await near.put("temp", f"d{n}", 0, owner="me"))
            assert len(await temps.changed()) == 3
            proxy.refusing = True
            proxy.cut()
            for n in range(60):
                last = await near.put("temp", f"d{n % 2}", n, owner="me")
            await near.withdraw('temp("d2", _)', owner="me")
            gone = last + 1
            while await oldest(near) < gone:
                last = await near.put("other", 1, last, owner="me")
            proxy.refusing = False
            changes = {
                key: (old and old.celsius, new and new.celsius) for key, old, new in await temps.changed()
            }
            assert changes == {"d0": (0, 58), "d1": (0, 59), "d2": (0, None)}
            assert [(key, row.celsius) for key, row in temps.items()] == [("d0", 58), ("d1", 59)]


async def test_a_publisher_that_comes_back_overlaps_for_its_grace(url: str) -> None:
    async with dataspace.connect(url) as space, space.live(PATTERN, by="device") as temps:
        async with dataspace.connect(url) as one, dataspace.connect(url) as two:
            await one.assert_(Record("temp", "d1", 1))
            epoch = (await two.assert_(Record("temp", "d1", 2))).epoch
            await temps.at(epoch or 0)
            with pytest.raises(dataspace.SeveralRows):
                temps["d1"]
            assert "d1" in temps and temps.error is None
        async for change in temps:
            if change.new is None:
                break
        assert len(temps) == 0


async def test_the_guide_prints_what_it_shows(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATASPACE_URL", url.replace("tcp:", "tcp://", 1))
    page = (Path(dataspace.__file__).parent / "guide" / "python.md").read_text(encoding="utf-8")
    before, after = page.split("trio.run(main)\n```\n\n", 1)
    program = before.split("```python\n")[1]
    shown = after.split("\n\n")[0]
    names: dict[str, Any] = {}
    exec(compile(program, "python.md", "exec"), names)
    await names["main"]()
    assert capsys.readouterr().out.splitlines() == [line[4:] for line in shown.splitlines()]


def test_without_async_any_thread_reads_whole_epochs(tmp_path: Path) -> None:
    """Two facts that move together are never seen apart."""
    daemon = DaemonProcess(tmp_path / "data")
    torn: list[object] = []
    with (
        running(daemon),
        dataspace.connect_blocking(daemon.url) as space,
        dataspace.connect_blocking(daemon.url) as writing,
        space.live(PATTERN, by="device", row=lambda _, celsius: celsius) as temps,
    ):
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                rows = dict(temps.items())
                if len(set(rows.values())) > 1 or len(temps) not in (0, 2):
                    torn.append(rows)

        readers = [threading.Thread(target=read) for _ in range(3)]
        calls: list[int] = []
        temps.subscribe(lambda live: calls.append(live.epoch))
        for reader in readers:
            reader.start()
        for n in range(200):
            with writing.turn() as turn:
                for device in ("d1", "d2"):
                    turn.put("temp", device, n, owner="me")
        temps.at(turn.epoch or 0)
        done.set()
        for reader in readers:
            reader.join()
        assert not torn and dict(temps) == {"d1": 199, "d2": 199} and len(calls) == 200
        assert [(change.key, change.old, change.new) for change in temps.changed()] == [
            ("d1", None, 199),
            ("d2", None, 199),
        ]
        with pytest.raises(TimeoutError):
            temps.changed(timeout=0.01)
        writing.withdraw('temp("d1", _)', owner="me")
        for change in temps.changes():
            assert (change.key, change.new) == ("d1", None)
            break
    assert dict(temps) == {"d2": 199} and isinstance(temps.error, dataspace.Closed)
