"""A reader without a task and a task for each connection answer the same, whatever comes in which order."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
from dataspace.kernel.actions import ASSERT, SEND
from dataspace.kernel.turns import KEYED
from dataspace.wire import packets as p
from dataspace.wire.features import MAIN, Wanted
from index.patterns.patterns import capture
from index.values.values import Map, Record, Value
from server.config.model import Config
from server.connections.dispatch import ClientPeer
from server.daemon.daemon import Daemon
from server.daemon.serve import serve
from server.sessions.peer import PEERS
from tests.server.peers import Peer, packed

FACT: Final = Record("said", 1)
PATTERN: Final = Record("said", capture("n"))

KINDS: Final[dict[str, p.Packet]] = {
    "turn": p.Turn(0, MAIN, "", ((SEND, FACT),)),
    "refused turn": p.Turn(0, "elsewhere", "", ((SEND, FACT),)),
    "conditional turn": p.Turn(0, MAIN, "", ((SEND, FACT),), (("exists", Record("no", 1)),)),
    "large turn": p.Turn(0, MAIN, "", tuple([(SEND, Record("said", n)) for n in range(KEYED + 1)])),
    "old turn": p.Turn(1, MAIN, "", ((SEND, FACT),)),
    "open": p.Open(0, Map({"space": MAIN, "pattern": PATTERN, "quiet": True}), 1000, 1 << 20),
    "ask": p.Ask(1, 2000, 1 << 21),
    "peek": p.Peek(1, 1),
    "abort": p.Abort(1, "", True),
    "request": p.Request(7, "sync", p.EMPTY),
    "slow request": p.Request(8, "status", p.EMPTY),
    "ping": p.Ping(3),
    "pong": p.Pong(3),
    "hello again": p.Hello(p.VERSION, "~again", "", p.EMPTY),
    "bye": p.Bye("", ""),
}


def numbered(kinds: Sequence[str]) -> list[p.Packet]:
    """The packets, with the numbers that their turn in the sequence gives them."""
    made: list[p.Packet] = []
    turns = streams = 0
    for kind in kinds:
        packet = KINDS[kind]
        if isinstance(packet, p.Turn) and packet.sequence == 0:
            turns += 1
            packet = packet._replace(sequence=turns)
        elif isinstance(packet, p.Open):
            streams += 1
            packet = packet._replace(stream=streams)
        made.append(packet)
    return made


@asynccontextmanager
async def served(data: Path, loop: str) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        config = Config(("tcp:127.0.0.1:0",), data, loop=loop)
        (url,) = await nursery.start(serve, config)
        yield url
        nursery.cancel_scope.cancel()


LAST: Final = 99
QUIET_SECONDS: Final = 0.02


async def soon(peer: Peer, wanted: set[int]) -> p.Packet | None:
    """The next packet; None at the end, or once nothing more comes after the wanted answers."""
    with trio.move_on_after(20 if wanted else QUIET_SECONDS):
        return await peer.hear()
    return None


async def answers(url: str, client: str, packets: Sequence[p.Packet], pieces: int) -> dict[str, list[Value]]:
    """What is answered, by kind: what the kinds say among each other depends on when groups are written."""
    data = b"".join(map(packed, packets))
    said: dict[str, list[Value]] = {}
    async with Peer(url) as peer:
        await peer.greet(client)
        size = max(1, len(data) // pieces)
        for at in range(0, len(data), size):
            await peer.shout(data[at : at + size])
            if pieces > 1:
                await trio.lowlevel.checkpoint()
        await peer.shout(packed(p.Request(LAST, "sync", p.EMPTY)))
        wanted = {LAST, *[each.number for each in packets if isinstance(each, p.Request)]}
        while (heard := await soon(peer, wanted)) is not None:
            match heard:
                case p.Accepted(first, epochs):
                    said.setdefault("accepted", []).extend(range(first, first + len(epochs)))
                case p.Values(stream, _, values):
                    for value in values:
                        assert isinstance(value, tuple)
                        said.setdefault(f"values of {stream}", []).append(
                            value[2:6]
                        )  # without numbers and time
                case p.Answer(number):
                    wanted.discard(number)
                    said.setdefault("answers", []).append(number)
                case p.Reached() | p.Ping():
                    pass
                case p.Bye(code, text):
                    said["bye"] = [code, text]
                case _:
                    said.setdefault(type(heard).__name__, []).append(tuple(heard))
    if "bye" in said:  # before it only that is answered for which there was time
        return {"bye": said["bye"]}
    for kind in ("accepted", "answers", "Done", "Available"):
        said.get(kind, []).sort(key=repr)
    if "accepted" in said:  # turns that come twice before they are on disk share an answer
        said["accepted"] = sorted(set(said["accepted"]))  # type: ignore[type-var]  # numbers
    return said


@pytest.mark.parametrize("length", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
async def test_both_answer_the_same(tmp_path: Path, length: int) -> None:
    kinds_used = list(KINDS)[:: 1 if length < 3 else 2]
    differing = []
    async with served(tmp_path / "task", "task") as task, served(tmp_path / "reader", "reader") as reader:
        for at, kinds in enumerate(product(kinds_used, repeat=length)):
            packets, pieces = numbered(kinds), (1, 3, 1000)[at % 3]
            with trio.fail_after(30):
                first, second = [await answers(url, f"~grid-{at}", packets, pieces) for url in (task, reader)]
            if first != second:
                differing.append((kinds, pieces, first, second))
    assert not differing, differing[:3]


async def test_packets_byte_by_byte_are_the_same_packets(tmp_path: Path) -> None:
    packets = numbered(["turn", "open", "ping", "large turn", "request", "ask", "turn"])
    async with served(tmp_path, "reader") as url:
        whole = await answers(url, "~whole", packets, 1)
        assert await answers(url, "~bytes", packets, 1 << 30) == whole
    assert whole["accepted"] == [1, 2, 3] and whole["answers"] == [7, LAST]


@asynccontextmanager
async def daemon_at(data: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Daemon, str]]:
    made: list[Daemon] = []
    begin = Daemon.__init__

    def noted(daemon: Daemon, *arguments: object) -> None:
        begin(daemon, *arguments)  # type: ignore[arg-type]  # as they came
        made.append(daemon)

    monkeypatch.setattr(Daemon, "__init__", noted)
    async with served(data, "reader") as url:
        yield made[0], url


def tasks_of(nursery: trio.Nursery) -> int:
    return len([task for task in nursery.child_tasks if "run" in task.name and "Peer" in task.name])


async def test_a_connection_has_a_task_only_while_something_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with daemon_at(tmp_path, monkeypatch) as (daemon, url):
        async with dataspace.connect(url) as space, space.observe("said($n)") as seen:
            await space.sync()
            with trio.fail_after(20):
                while tasks_of(daemon.peers):  # noqa: ASYNC110  # its end is what is tested
                    await trio.sleep(0.05)
            for n in range(100):
                await space.send(Record("said", n))
                assert (await seen.next_epoch()) is not None
                assert not tasks_of(daemon.peers), "turns and credit pass no task"
            assert await space.request("status", Map())
            assert tasks_of(daemon.peers) == 1
        with trio.fail_after(20):
            while daemon.parts[PEERS] or tasks_of(daemon.peers):  # noqa: ASYNC110  # as above
                await trio.sleep(0.01)


@pytest.mark.parametrize("how", ["bye", "end", "reset", "too late", "cancelled", "dismissed", "superseded"])
@pytest.mark.parametrize("is_idle", [False, True])
async def test_every_end_of_a_connection_retracts_its_facts_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, is_idle: bool
) -> None:
    """With a task for what came last, and without one."""
    async with daemon_at(tmp_path, monkeypatch) as (daemon, url), dataspace.connect(url) as watcher:
        async with watcher.observe("held($n)") as held:
            peer = Peer(url)
            async with peer:
                features = Wanted(heartbeat=0.2 if how == "too late" else 60.0).packed()
                await peer.say(p.Hello(p.VERSION, "~ends", "", features))
                assert isinstance(await peer.hear(), p.Welcome)
                await peer.say(p.Turn(1, MAIN, "", ((ASSERT, 1, Record("held", 1)),)))
                while (epoch := await held.next_epoch()) is None or not epoch.added:
                    pass  # the state, which is empty
                if is_idle:
                    with trio.fail_after(20):
                        while tasks_of(daemon.peers) > 0:  # noqa: ASYNC110  # the watcher's ends as well
                            await trio.sleep(0.05)
                (served_peer,) = [
                    each
                    for each in daemon.parts[PEERS].values()
                    if each.state is not None and each.state.client.name == "~ends"
                ]
                number = served_peer.number
                match how:
                    case "bye":
                        await peer.say(p.Bye("", ""))
                    case "end":
                        await peer.socket.send_eof()
                    case "reset":
                        peer.reset()
                    case "cancelled":
                        served_peer.cancel()
                    case "dismissed":
                        served_peer.dismiss("going", "away")
                    case "superseded":
                        served_peer.supersede("by another")
                del served_peer
                with trio.fail_after(20):
                    epoch = await held.next_epoch()
                    assert epoch is not None and [*epoch.removed] == [(1,)]
                    while len(daemon.parts[PEERS]) > 1:  # noqa: ASYNC110  # its end is what is tested
                        await trio.sleep(0.01)
            await trio.sleep(0.3)  # deadlines that were set may still name it
            gc.collect()
            # looked for, since a compiled class has no weak references
            made = [each for each in gc.get_objects() if isinstance(each, ClientPeer)]
            held_on = [each for each in made if each.number == number]
            assert not held_on


async def test_connections_without_a_task_end_with_the_daemon(tmp_path: Path) -> None:
    async with served(tmp_path, "reader") as url:
        async with dataspace.connect(url, name="idle") as space:
            await space.assert_(Record("held", 1))
            await trio.sleep(0.5)
    async with served(tmp_path, "reader") as url, dataspace.connect(url) as space:
        async with space.observe("held($n)", quiet=True) as held:
            first = await held.next_epoch()
            assert first is not None and not first.added


async def test_a_system_without_epoll_has_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("server.daemon.serve", "server.extras"):
        monkeypatch.setattr(f"{module}.is_available", lambda: False)
    async with served(tmp_path, "auto") as url, dataspace.connect(url) as space:
        status = await space.request("status", Map())
        assert isinstance(status, Map) and status["loop"] == "task"
    with pytest.RaisesGroup(dataspace.UsageError, flatten_subgroups=True):
        async with served(tmp_path, "reader"):
            pass


async def test_no_packet_is_lost_however_short_the_heartbeat(tmp_path: Path) -> None:
    """Deadlines pass while packets of a chunk are yet to be acted on."""
    count, accepted = 2000, dict[int, list[int]]()

    async def pipeline(number: int, url: str) -> None:
        turns = [p.Turn(at + 1, MAIN, "", ((SEND, FACT),)) for at in range(count)]
        async with Peer(url) as peer, trio.open_nursery() as nursery:
            await peer.say(p.Hello(p.VERSION, f"~fast-{number}", "", Wanted(heartbeat=0.05).packed()))
            nursery.start_soon(peer.shout, b"".join(map(packed, turns)))
            mine = accepted.setdefault(number, [])
            while len(mine) < count:
                heard = await peer.hear()
                assert heard is not None and not isinstance(heard, p.Bye), heard
                if isinstance(heard, p.Accepted):
                    mine.extend(range(heard.first, heard.first + len(heard.epochs)))
                elif isinstance(heard, p.Ping):
                    await peer.say(p.Pong(heard.number))

    async with served(tmp_path, "reader") as url:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(pipeline, number, url)
    assert all(each == list(range(1, count + 1)) for each in accepted.values())


async def test_a_defect_in_a_heartbeat_ends_its_session_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with daemon_at(tmp_path, monkeypatch) as (daemon, url), Peer(url) as peer, Peer(url) as other:
        await peer.say(p.Hello(p.VERSION, "~beats", "", Wanted(heartbeat=0.2).packed()))
        assert isinstance(await peer.hear(), p.Welcome)
        (served_peer,) = [each for each in daemon.parts[PEERS].values() if each.state is not None]
        served_peer.sending._beaten = lambda: 1 // 0  # type: ignore[attr-defined]  # what streams have to say
        with trio.fail_after(20):
            bye = (await peer.rest())[-1]
            assert isinstance(bye, p.Bye) and bye.code == "internal"
            assert isinstance(await other.greet("~other"), p.Welcome)
    assert "this is a defect" in caplog.text


async def test_what_comes_while_a_task_of_another_feature_waits_for_room_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with daemon_at(tmp_path, monkeypatch) as (daemon, url), Peer(url) as peer:
        await peer.greet("~room")
        await trio.sleep(0.5)  # its task has ended
        (served_peer,) = daemon.parts[PEERS].values()
        commits = daemon.main.leading.commits
        most, commits._limit_epochs = commits._limit_epochs, -1  # so that there is no room

        async def feature() -> None:
            await trio.sleep(0.3)

        served_peer.start(feature)
        await trio.sleep(0.05)
        await peer.say(p.Request(7, "sync", p.EMPTY))
        await trio.sleep(0.05)
        commits._limit_epochs = most
        with trio.fail_after(10):
            async with dataspace.connect(url) as other:
                await other.send(FACT)  # the end of its group wakes those that wait for room
            while not isinstance(heard := await peer.hear(), p.Answer):
                assert heard is not None
        assert heard.number == 7
