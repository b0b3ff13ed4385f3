"""What is about a daemon is asked of the daemon that the client has named, whatever that leads or follows.

The law: each verb about a daemon, by each client, at each role of a daemon, before and after the client was
sent on to the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.bulk.short import ShortClient
from dataspace.errors import UsageError
from dataspace.transport.addresses import parse_listen
from dataspace.wire.verbs import ACTS, VERBS, Subject, is_of_daemon
from index.values.values import Map, Value
from relay.store.address import StoreAddress
from server.cli.main import main
from server.cli.table import ROWS
from server.config.model import Cluster, Config, Follow, SpaceConfig
from server.connections.dispatch import SERVED
from server.daemon import serve as serving
from server.daemon.daemon import Daemon
from server.daemon.serve import serve
from server.sessions.peer import Peer
from server.sessions.requests import Unread, Unwritten
from tests.conformance.test_javascript_live import run
from tests.routes import ROUTES
from tests.server.following.test_lag import got, patient
from tests.server.processes import command

SOON: Final = 60.0
OF_DAEMON: Final = sorted(verb for verb, row in VERBS.items() if row.subject is Subject.DAEMON)

OF_NAMED: Final = [verb for verb in OF_DAEMON if is_of_daemon(verb)]
"""Without ``status``, with which a session learns which daemon serves it."""

ASKED: Final[Mapping[str, dict[str, Value]]] = {
    "end-session": {"session": 1},
    "drain": {"within": 0, "reason": ""},
}
NOT_DONE: Final = Map({"sessions": 0, "session": 1, "name": "", "principal": ""})
"""What a daemon of these tests answers to an act, which it does not carry out."""


# -- the table ----------------------------------------------------------------------------------------

COMMANDS: Final = {"status", "index", "actors", "sessions", "top", "inspect", "drain"}
"""The commands about one daemon."""

OTHERS: Final = {
    *("assert", "retract", "put", "get", "query", "observe", "consume", "watch", "send", "log", "rule"),
    *("topic", "shell", "owners", "groups", "cluster"),
}
"""The first words of the commands about a space or topics."""


def test_each_verb_route_and_command_is_about_one_subject() -> None:
    assert {row.path for row in ROUTES if "{space}" not in row.path and "{topic}" not in row.path} == {
        "/v1/status"
    }
    assert {row.name.split()[0] for row in ROWS if row.is_client} == COMMANDS | OTHERS


# -- the daemons --------------------------------------------------------------------------------------


class Noted(Daemon):
    """A daemon that notes what it is asked about itself, and carries out no act."""

    asked: Final[list[tuple[str, str]]] = []
    """Each verb that one of the daemons was asked, after the name of that daemon."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        served = self.parts[SERVED]
        noted = {name: self._noted(name, served.verbs[name]) for name in OF_DAEMON}
        served.verbs = {**served.verbs, **noted}

    def _noted(self, name: str, verb: Unread) -> Unread:
        async def asked(peer: Peer, arguments: Map) -> Value | Unwritten:
            self.asked.append((self.config.cluster.name or "", name))
            if name not in ACTS:
                return await verb(peer, arguments)
            await trio.lowlevel.checkpoint()
            return NOT_DONE

        return asked


@dataclass
class Named:
    """The daemon that a client names, by its name and its addresses; ``moves`` if turns lead elsewhere."""

    name: str
    url: str
    web: str
    moves: bool


async def _start(
    nursery: trio.Nursery, config: Config, name: str, ending: trio.Event | None = None
) -> tuple[str, str]:
    config = replace(config, cluster=Cluster(name=name, lease=600.0))
    plain, web = await nursery.start(partial(serve, config, ending=ending))
    return parse_listen(plain).url, parse_listen(web).http


@asynccontextmanager
async def _leader(config: Config) -> AsyncIterator[Named]:
    async with trio.open_nursery() as nursery:
        yield Named("a", *await _start(nursery, config, "a"), moves=False)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _follower(config: Config, *, is_led: bool = True) -> AsyncIterator[Named]:
    assert isinstance(config.data, Path)
    ending = trio.Event()
    async with trio.open_nursery() as nursery:
        await _start(nursery, config, "a", ending)
        follower = await _start(nursery, replace(config, follow=Follow(config.data)), "b")
        if not is_led:
            ending.set()
        await _wait(follower[0], lambda status: bool(status["leader"]) is is_led)
        yield Named("b", *follower, moves=is_led)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _leader_of_another_space(config: Config) -> AsyncIterator[Named]:
    config = replace(config, spaces=(SpaceConfig("two", config.data, prefer="b"),))
    async with trio.open_nursery() as nursery:
        await _start(nursery, config, "a")
        member = await _start(nursery, config, "b")
        await _wait(member[0], lambda status: bool(status["leads"]), "two")
        await _wait(member[0], lambda status: bool(status["leader"]))
        yield Named("b", *member, moves=True)
        nursery.cancel_scope.cancel()


async def _wait(url: str, holds: Callable[[Map], bool], space: str = "main") -> None:
    with trio.fail_after(SOON):
        async with dataspace.connect(url, space=space) as asking:
            while not holds(await asking.status()):  # noqa: ASYNC110  # of another daemon
                await trio.sleep(0.05)


Role = Callable[[Config], Any]
ROLES: Final[dict[str, Role]] = {
    "leader": _leader,
    "follower": _follower,
    "follower without a leader": partial(_follower, is_led=False),
    "member that leads another space": _leader_of_another_space,
}


@pytest.fixture(params=ROLES)
async def named(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Named]:
    monkeypatch.setattr(serving, "Daemon", Noted)
    Noted.asked.clear()
    home: Path | StoreAddress = tmp_path / "data"
    if request.param == "member that leads another space":
        home = StoreAddress.parse(patient(request.getfixturevalue("postgres_url")))
    with trio.fail_after(2 * SOON):
        async with ROLES[request.param](Config(("tcp:127.0.0.1:0", "http:127.0.0.1:0"), home)) as found:
            Noted.asked.clear()
            yield found


# -- the clients --------------------------------------------------------------------------------------


async def _by_trio(named: Named, tmp_path: Path) -> None:
    for moves in (False, named.moves):
        async with dataspace.connect(named.url) as space:
            if moves:
                await space.send(Record("moved"))  # the leader takes it, and the client goes there
            for verb in OF_NAMED:
                await space.request(verb, Map(ASKED.get(verb, {})))
            await space.named.request("status", Map())


async def _by_asyncio(named: Named, tmp_path: Path) -> None:
    async def ask() -> None:
        async with dataspace.connect(named.url) as space:
            if named.moves:
                await space.send(Record("moved"))
            for verb in OF_NAMED:
                await space.request(verb, Map(ASKED.get(verb, {})))

    await trio.to_thread.run_sync(asyncio.run, ask())


async def _by_blocking(named: Named, tmp_path: Path) -> None:
    def ask() -> None:
        with dataspace.connect_blocking(named.url) as space:
            if named.moves:
                space.send(Record("moved"))
            for verb in OF_NAMED:
                space.request(verb, Map(ASKED.get(verb, {})))

    await trio.to_thread.run_sync(ask)


async def _by_short(named: Named, tmp_path: Path) -> None:
    def ask(here: bool) -> None:
        with ShortClient(named.url, here=here) as client:
            for verb in OF_DAEMON if here else OF_NAMED:
                client.request(verb, ASKED.get(verb, {}))

    await trio.to_thread.run_sync(ask, True)
    if named.moves:
        await trio.to_thread.run_sync(ask, False)  # it goes to the leader at once


async def _by_commands(named: Named, tmp_path: Path) -> None:
    for words in (
        *(["status"], ["index"], ["actors"], ["sessions"], ["sessions", "end", "1"]),
        *(["drain", "--within", "0s"], ["inspect", "--no-open"]),
    ):
        assert await trio.to_thread.run_sync(main, [*words, "--url", named.url]) == 0, words


async def _by_top(named: Named, tmp_path: Path) -> None:
    assert (await command("top", "--count", "1", "--url", named.url)).returncode == 0


async def _at_the_prompt(named: Named, tmp_path: Path) -> None:
    lines = [*(["send moved()"] if named.moves else []), "status", "sessions", "sessions end 1", "drain"]
    assert (await command("shell", "--url", named.url, said="\n".join(lines))).returncode == 0


async def _by_javascript(named: Named, tmp_path: Path) -> None:
    text = """
    const space = await connect(url);
    await space.status();
    await space.request("sessions", {});
    await space.request("end-session", { session: 1 });
    await space.request("drain", { within: 0, reason: "" });
    await space.close();
    console.log("[]");
    """
    assert await run(tmp_path, text, url=named.web) == []


async def _by_http(named: Named, tmp_path: Path) -> None:
    assert (await got(named.web, "/v1/status"))[0] == 200


CLIENTS: Final[dict[str, Callable[[Named, Path], Awaitable[None]]]] = {
    "trio": _by_trio,
    "asyncio": _by_asyncio,
    "blocking": _by_blocking,
    "short": _by_short,
    "commands": _by_commands,
    "top": _by_top,
    "prompt": _at_the_prompt,
    "JavaScript": _by_javascript,
    "HTTP": _by_http,
}


@pytest.mark.slow
async def test_a_daemon_is_asked_about_itself_by_each_client(named: Named, tmp_path: Path) -> None:
    for client, ask in CLIENTS.items():
        Noted.asked.clear()
        await ask(named, tmp_path)
        assert Noted.asked, client
        assert {name for name, _ in Noted.asked} == {named.name}, (client, Noted.asked)
        for verb in ACTS if client not in ("HTTP", "top") else ():
            assert (named.name, verb) in Noted.asked, (client, verb)


# -- several daemons ----------------------------------------------------------------------------------


async def test_who_names_several_daemons_may_not_act_on_one(url: str, other: str) -> None:
    urls = f"{parse_listen(url).url},{parse_listen(other).url}"
    async with dataspace.connect(urls) as space:
        assert (await space.status())["leads"] is True
        for verb in ACTS:
            with pytest.raises(UsageError, match="about one daemon, and this client names 2"):
                await space.request(verb, Map(ASKED[verb]))
    words = ["drain", "--url", urls]
    assert await trio.to_thread.run_sync(main, words) == 2
