"""Members and leaders of a cluster are facts of the space ``system``, the same at each of its daemons."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import TypeAlias

import psycopg
import pytest
import trio
from psycopg import sql

import dataspace
from dataspace import Record
from dataspace.errors import Broken, Unreachable
from dataspace.version import __version__
from index.values.values import Value
from relay.store.address import StoreAddress
from server.cluster.database.cluster_state import MemberSeen, SpaceSeen, latest_of
from server.cluster.database.membership import facts_of
from server.cluster.database.reading import seen
from tests.server.processes import DaemonProcess, command, running

SOON = 240
LEASE = "DATASPACE_SERVE_CLUSTER_LEASE"
NAMES = ("one", "two", "three")
LABELS = (
    "member($name, $url, $web, $version, $lives)",
    "leader($space, $name, $url, $term, $since)",
    "takeover($space, $term, $before, $after, $at, $why)",
    "cluster-differs($name, $url)",
)
Rows: TypeAlias = "set[tuple[Value, ...]]"


# -- what is stated -----------------------------------------------------------------------------------


def member(name: str, left: float, *, url: str = "tcp://a", settings: str = "ab") -> MemberSeen:
    return MemberSeen(name, url, "", __version__, left, settings)


def test_a_member_that_came_back_is_one_and_commands_are_none() -> None:
    back = [member("one", 2.0, url="tcp://new"), member("one", -5.0, url="tcp://old")]
    gone = [member("two", -1.0, url="tcp://last"), member("two", -9.0, url="tcp://before")]
    twice = [member("three", 2.0, url="tcp://x"), member("three", 1.0, url="tcp://y")]
    copying = [member("dataspace log copy", 3.0, url="")]
    assert latest_of([*back, *gone, *twice, *copying]) == [back[0], gone[0], *twice]


def test_a_run_that_was_started_again_at_its_url_is_gone_though_its_lease_lasts() -> None:
    again = [member("one", 2.0), member("one", 590.0)]
    assert latest_of(again) == [again[0]]
    namesakes = [member("one", -1.0, url="tcp://x"), member("one", 2.0, url="tcp://y")]
    assert latest_of(namesakes) == [namesakes[1]], "of one name a run lives, so none is gone"


def test_members_with_other_settings_are_named_if_they_live_and_have_this_version() -> None:
    others = [
        member("same", 1.0),
        member("other", 1.0, settings="cd"),
        member("gone", -1.0, settings="cd"),
        member("newer", 1.0, settings="cd")._replace(version="9.9.9"),
    ]
    differing = [each for each in facts_of(others, [], "ab") if each.label == "cluster-differs"]
    assert differing == [Record("cluster-differs", "other", "tcp://a")]


def test_a_space_has_a_leader_while_that_lives_and_keeps_its_last_takeover() -> None:
    first = SpaceSeen("main", 1, "one", "tcp://a", 2.0, 5.0, "one", None, "first")
    assert facts_of([], [first], "") == {Record("leader", "main", "one", "tcp://a", 1, 5_000_000)}
    taken = SpaceSeen("main", 2, "two", "tcp://b", 2.0, 6.5, "two", "one", "lapsed")
    takeover = Record("takeover", "main", 2, "one", "two", 6_500_000, "lapsed")
    leader = Record("leader", "main", "two", "tcp://b", 2, 6_500_000)
    assert facts_of([], [taken], "") == {leader, takeover}
    assert facts_of([], [taken._replace(left=-1.0)], "") == {takeover}
    assert facts_of([], [SpaceSeen("new", 0, None, None, -1.0, 0.0, None, None, None)], "") == set()


# -- with daemons -------------------------------------------------------------------------------------


@pytest.fixture
def start(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., list[DaemonProcess]]]:
    """Starts a daemon for each text of a configuration, which becomes ``one``, ``two`` or ``three``."""
    with ExitStack() as held:

        def begin(*configs: str, lease: str) -> list[DaemonProcess]:
            monkeypatch.setenv(LEASE, lease)
            found = []
            for name, text in zip(NAMES, configs, strict=False):
                path = tmp_path / f"{name}.toml"
                path.write_text(f'cluster.name = "{name}"\n{text}')
                found.append(DaemonProcess(postgres_url, "--config", str(path)))
            held.enter_context(running(*found))
            return found

        yield begin


async def stated(daemon: DaemonProcess, pattern: str) -> Rows:
    """What a daemon states now."""
    async with dataspace.connect(daemon.url, space="system", read="leader") as system:
        return {tuple(row) for row in await system.matches(pattern)}


async def agreed(daemons: Sequence[DaemonProcess], pattern: str, found: Callable[[Rows], bool]) -> Rows:
    """Returns what all of these daemons state, once they state the same and that is what was looked for."""
    while True:
        with suppress(Unreachable, Broken):  # one that steps down listens again in a moment
            first, *others = [await stated(each, pattern) for each in daemons]
            if found(first) and all(each == first for each in others):
                return first
        await trio.sleep(0.05)


async def status(url: str) -> str:
    """What ``cluster status`` prints."""
    done = await command("cluster", "status", "--data", url)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
async def test_a_daemon_that_is_killed_and_started_again_within_its_lease_is_shown_once(
    start: Callable[..., list[DaemonProcess]], postgres_url: str
) -> None:
    one, two = start("", "", lease="10m")
    with trio.fail_after(SOON):
        await agreed([one, two], LABELS[0], lambda rows: len(rows) == 2)
        await trio.to_thread.run_sync(two.kill)
        await trio.to_thread.run_sync(two.start)
        runs = list[MemberSeen]()
        while len(runs) < 2:  # until the new run has said where it listens
            members = (await trio.to_thread.run_sync(seen, StoreAddress.parse(postgres_url))).members
            runs = [each for each in members if each.url == two.url]
        assert all(each.left > 0 for each in runs)
        found = await status(postgres_url)
        assert found.count(two.url) == 1 and "gone" not in found
        assert found.count("daemon ") == 2, found


@pytest.mark.slow
async def test_each_daemon_states_who_is_there_who_leads_and_who_took_over(
    start: Callable[..., list[DaemonProcess]], postgres_url: str
) -> None:
    daemons = start("", "", "", lease="8s")
    one, two, three = daemons
    with trio.fail_after(SOON):
        members = await agreed(daemons, LABELS[0], lambda rows: len(rows) == 3)
        urls = {name: each.url for name, each in zip(NAMES, daemons, strict=True)}
        assert members == {(name, urls[name], "", __version__, True) for name in NAMES}
        [(space, name, url, term, since)] = await agreed(daemons, LABELS[1], lambda rows: len(rows) == 1)
        assert (space, name, url, term) == ("main", "one", one.url, 1)
        assert await agreed(daemons, LABELS[2], lambda rows: not rows) == set(), "nothing was taken over yet"

        await trio.to_thread.run_sync(one.kill)
        others = [two, three]
        [(_, _, before, after, at, why)] = await agreed(others, LABELS[2], lambda rows: len(rows) == 1)
        assert (before, why) == ("one", "lapsed") and after in ("two", "three")
        [(_, name, url, term, later)] = await agreed(others, LABELS[1], lambda rows: len(rows) == 1)
        assert (name, url, term, later) == (after, urls[str(after)], 2, at)
        assert isinstance(since, int) and isinstance(later, int) and since < later
        gone = ("one", one.url, "", __version__, False)
        members = await agreed(others, LABELS[0], lambda rows: gone in rows)
        assert {row[0]: row[4] for row in members} == {"one": False, "two": True, "three": True}
        shown = await status(postgres_url)
        assert f"daemon one  {one.url}  version {__version__}, gone since " in shown
        assert shown.count(", lease ") == 2 and shown.count("daemon one") == 1

        await trio.to_thread.run_sync(one.start)
        back = ("one", one.url, "", __version__, True)
        members = await agreed(daemons, LABELS[0], lambda rows: back in rows)
        assert len(members) == 3, "the run that was killed is not a member of its own"
        shown = await status(postgres_url)
        assert "gone since" not in shown and shown.count("daemon ") == 3

        leader = two if after == "two" else three
        await trio.to_thread.run_sync(leader.stop)
        rest = [each for each in daemons if each is not leader]
        members = await agreed(rest, LABELS[0], lambda rows: len(rows) == 2)
        assert after not in {row[0] for row in members}, "it has left"
        assert f"daemon {after}  {leader.url}  version {__version__}, left 2" in await status(postgres_url)
        [(_, term, before, _, _, why)] = await agreed(
            rest, LABELS[2], lambda rows: {row[1] for row in rows} == {3}
        )
        assert (before, why) == (after, "ended")
        assert await stated(rest[0], LABELS[3]) == set()


@pytest.mark.slow
async def test_a_move_is_stated_and_leases_that_are_renewed_change_nothing(
    start: Callable[..., list[DaemonProcess]], postgres_url: str
) -> None:
    one, two = start("[spaces.a]", "[spaces.a]", lease="10m")
    with trio.fail_after(SOON):
        assert (await command("cluster", "move", "a", "two", "--data", postgres_url)).returncode == 0
        moved = await agreed([one, two], LABELS[2], lambda rows: len(rows) == 1)
        [(space, term, before, after, _, why)] = moved
        assert (space, before, after, why) == ("a", "one", "two", "moved")
        assert f"term {term!r}, after one (moved)" in await status(postgres_url)

        async with dataspace.connect(one.url, space="system") as system, AsyncExitStack() as held:
            seen = [await held.enter_async_context(system.observe(pattern, quiet=True)) for pattern in LABELS]
            for each in seen:
                epoch = await each.next_epoch()
                assert epoch is not None and epoch.number
            for _ in range(3):
                await renewed(postgres_url, one, two)
            await trio.to_thread.run_sync(two.stop)
            left, led, taken = [await each.next_epoch() for each in seen[:3]]
            assert left is not None and led is not None and taken is not None
            assert (list(left.added), [row[0] for row in left.removed]) == ([], ["two"])
            assert [row[:4] for row in led.removed] == [("a", "two", two.url, term)]
            assert [row[:4] + row[5:] for row in taken.removed] == [("a", term, "one", "two", "moved")]


async def renewed(url: str, *daemons: DaemonProcess) -> None:
    """Has daemons renew their leases, as a reload does, and returns once they have."""
    schema, first = StoreAddress.parse(url).schema, dict[object, int]()
    while True:
        with psycopg.connect(url.partition("?schema=")[0]) as connection:
            question = sql.SQL("SELECT nonce, beat FROM {}").format(sql.Identifier(schema, "members"))
            rows = connection.execute(question).fetchall()
        if not first:
            first = dict(rows)
            for each in daemons:
                each.process.send_signal(signal.SIGHUP)
        if all(beat > first[nonce] for nonce, beat in rows):
            return
        await trio.sleep(0.05)


@pytest.mark.slow
async def test_daemons_with_other_settings_name_each_other(start: Callable[..., list[DaemonProcess]]) -> None:
    one, two, three = start("", "limits.facts = 5", "", lease="10m")
    with trio.fail_after(SOON):
        await agreed([one, three], LABELS[3], lambda rows: rows == {("two", two.url)})
        await agreed([two], LABELS[3], lambda rows: rows == {("one", one.url), ("three", three.url)})


async def test_a_daemon_with_a_directory_states_no_cluster(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    with running(daemon), trio.fail_after(SOON):
        for pattern in LABELS:
            assert await stated(daemon, pattern) == set()
