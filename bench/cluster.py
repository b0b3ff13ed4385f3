"""What does a cluster cost beside SQLite, how late are its followers, and how long does it have no leader?

PostgreSQL, the daemons and their clients share the cores of one machine; where followers are measured the
leader and its writer have one half of the cores, followers and watchers the other one.  The files of both
databases are in memory, if there is room, so that figures are of the programs and not of a disk.  Ratios are
medians of rounds in each of which both take turns.

    turns_ratio_N           durable turns a second on PostgreSQL ÷ SQLite: N turns are sent at once, which one
                            group commits, and the next N when all are accepted; in pairs of runs. Wanted
                            are 0.75, 0.8 and 0.85 for 1, 8 and 40
    turns_p50_ratio_N       the median time of such a group, likewise
    turns_cpu_ratio_N       CPU time of the daemon, and of PostgreSQL, for such a turn, likewise
    commit_client_us        CPU time of the thread that commits one segment of 150 bytes after another
    commit_backend_us       the same of PostgreSQL's process
    plain_client_us, plain_backend_us   likewise, by the statement that may write several
    seen_p50_ms, _p99       from the call of a writer to a watcher on the leader, one change at a time
    follower_p50_ms, _p99   the same to a watcher on a follower
    lag_p50_ms, lag_p99_ms  from the acceptance of a turn to a watcher on a follower
    observer_ratio_60_on_2  the leader's CPU time for a turn with 60 watchers on two followers ÷ with none
    killed_over_lease_ms    from SIGKILL of the leader to the next accepted turn, less the lease; the longest
    ended_ms                SIGTERM: the longest time between two acceptances, for a client amid its turns
    moved_other_ms          while a space of ``--facts`` moves: the longest time between two acceptances of a
                            client that makes a turn in another space each 5 ms, at either of the two daemons,
                            less these 5 ms
    moved_pause_ms          for how long no turn was possible in the space that moved, as its daemons say
    still_other_ms          as moved_other_ms, for as long a time in which nothing moves
    idle_transactions       of each of three daemons with nothing to do, in a second
    idle_connections        of all three together

Beside etcd with three members, if its program is there (``make peers``), and three daemons; both keep
changes on disk before they acknowledge them.

    etcd_turns_ratio        pipelined single changes a second, one watcher: ours ÷ etcd's
    etcd_seen_p50_ratio     from a writer's call to a watcher on the leader, one at a time
    etcd_cpu_ratio          CPU time of all processes for such a change, PostgreSQL's included
    etcd_killed_ms          from SIGKILL of etcd's leader to the next accepted change; the longest
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from itertools import count
from multiprocessing.connection import Connection
from operator import truediv
from pathlib import Path
from typing import Any, Final

import trio

import dataspace
from bench._fanout import VALUE, watch_all, write
from bench._figures import command_line, show
from bench._latency import PAUSE, hear, latency, latency_between, tick
from bench._processes import (
    Measuring,
    Run,
    Served,
    Side,
    cpu_seconds,
    daemons_of,
    on_half,
    running,
    serving_on,
)
from bench._systems.etcd import ETCD, leader_of, members, puts
from bench._systems.system import Missing
from bench.followers import watch_quietly
from index.values.values import Record
from relay.store.address import StoreAddress
from relay.store.ports import Row
from server.cluster.database.reading import move, seen
from tests.postgres.programs import NONE, programs

GROUPS: Final = (1, 8, 40, 200)
TURNS: Final = 4_000
"""Turns in a round, for each size of a group but the first."""
PAIRS: Final = 6
"""Pairs of runs, of PostgreSQL and of SQLite, that share the turns of a round."""
CHANGES: Final = 400
WATCHERS: Final = 60
LEASE: Final = 3.0
AMID: Final = 50
"""Turns after which the leader is ended."""
LONGEST: Final = (
    *("killed_over_lease_ms", "ended_ms", "etcd_killed_ms"),
    *("moved_other_ms", "moved_pause_ms", "still_other_ms"),
)
"""The figures of which the longest counts."""
FACTS: Final = 300_000
"""Facts of the space that moves."""
LOADED: Final = 2_000
"""Facts of a turn that fills it."""
STEADY: Final = 0.005
"""Seconds between two turns of a client in a space that does not move."""
PATIENCE: Final = 300
"""Seconds that a quick run may take before it is given up."""


@contextmanager
def cluster(server: Any, count: int, *, apart: bool = False) -> Iterator[list[Served]]:
    """So many daemons over an empty store, the first of which leads: ``apart`` on a half of the cores."""
    settled = {**os.environ, "DATASPACE_SERVE_CLUSTER_LEASE": f"{LEASE:g}s"}
    with server.schema() as schema, daemons_of(settled), ExitStack() as stack:
        daemons = []
        for number in range(count):
            with on_half(min(number, 1)) if apart else nullcontext():
                daemons.append(stack.enter_context(serving_on(server.url(schema))))
        yield daemons


async def commit_groups(url: str, groups: int, together: int, report: Connection) -> None:
    """Sends so many turns at once, again and again; reports the seconds of each group."""
    took = []
    async with dataspace.connect(url, name="bench writer") as space:
        await space.send(Record("tick", 0, VALUE))
        for _ in range(groups):
            began = time.perf_counter()
            tickets = []
            for n in range(together):
                draft = space.draft()
                draft.send(Record("tick", n, VALUE))
                tickets.append(await space.submit(draft))
            for each in tickets:
                await each.wait()
            took.append(time.perf_counter() - began)
    report.send(took)


def groups_on(url: str, groups: int, together: int) -> tuple[float, float]:
    """Returns turns a second and the median seconds of a group."""
    with running(commit_groups, url, groups, together) as side:
        took: list[float] = side.pipe.recv()
    return together * len(took) / sum(took), statistics.median(took)


def measure_commits(server: Any, commits: int) -> dict[str, float]:
    """Returns the microseconds of CPU time of a commit: of the thread, and of PostgreSQL's process."""
    from relay.log.segments import CHECKSUM_BYTES
    from relay.store.postgres.tables import PostgresLog
    from tests.relay.store.postgres.leaders import Leader

    numbers, seal = count(1), bytes(CHECKSUM_BYTES)

    def row() -> Row:
        at = next(numbers)
        return (at, at, at, 1, 1, 0, 0, seal, bytes(150))

    figures: dict[str, float] = {}
    with server.schema() as schema, closing(Leader(server.url(schema))) as leader:
        leader.take()
        log = PostgresLog(leader.database, leader.space, leader.writer)
        log.append([row()], {})
        forms: dict[str, Callable[[], None]] = {
            "commit": lambda: log.append([row()], {}),
            "plain": lambda: log.append([row()], {"oldest": 1}),
        }
        assert leader.writer is not None and leader.writer._connection is not None  # it has written
        process = leader.writer._connection.info.backend_pid
        for name, commit in forms.items():
            for _ in range(20):  # until plans are made
                commit()
            client, backend = time.thread_time(), cpu_seconds(process)
            for _ in range(commits):
                commit()
            figures[f"{name}_client_us"] = (time.thread_time() - client) / commits * 1e6
            figures[f"{name}_backend_us"] = (cpu_seconds(process) - backend) / commits * 1e6
    return figures


def measure_groups(server: Any, place: str, scale: float, *, reverse: bool) -> dict[str, float]:
    """Returns one round of PostgreSQL ÷ SQLite."""
    figures: dict[str, float] = {}
    with (
        cluster(server, 1) as [there],
        tempfile.TemporaryDirectory(dir=place) as data,
        serving_on(data) as here,
    ):
        for together in GROUPS:
            groups = max(3, int(TURNS * scale) // together // (4 if together == 1 else 1) // PAIRS)
            pairs: list[tuple[float, ...]] = []
            for pair in range(1 if scale < 1 else PAIRS):
                found = {}
                for each in [here, there] if reverse ^ (pair % 2) else [there, here]:
                    pids = [each.pid, *(server.processes() if each is there else [])]
                    with Measuring(*pids) as measuring:
                        rate, median = groups_on(each.url, groups, together)
                    found[each.url] = rate, median, measuring.run(groups * together).cpu
                pairs.append(tuple(map(truediv, found[there.url], found[here.url])))
            for name, ratios in zip(
                ("turns", "turns_p50", "turns_cpu"), zip(*pairs, strict=True), strict=True
            ):
                figures[f"{name}_ratio_{together}"] = statistics.median(ratios)
    return figures


async def tick_accepted(url: str, count: int, report: Connection) -> None:
    """As ``tick``, with the times of acceptances."""
    accepted = []
    async with dataspace.connect(url, name="bench writer") as space:
        for n in range(count):
            await space.send(Record("tick", n))
            accepted.append(time.perf_counter())
            await trio.sleep(PAUSE)
        report.send(accepted)
        await trio.sleep_forever()


def measure_followers(server: Any, scale: float) -> dict[str, float]:
    """Returns one round of how late followers are, and of what they spare the leader."""
    count, turns = max(40, int(CHANGES * scale)), max(40, int(1000 * scale))
    figures: dict[str, float] = {}
    with cluster(server, 3, apart=True) as [leader, *followers]:
        time.sleep(1.0)  # all have read what there is
        there = followers[0].url
        for name, ticks, watched in (
            ("seen", tick, leader.url),
            ("follower", tick, there),
            ("lag", tick_accepted, there),
        ):
            times = latency_between(ticks, hear, (leader.url, watched), count)
            figures |= dict(zip((f"{name}_p50_ms", f"{name}_p99_ms"), times, strict=True))
        none = cpu_of_turns(leader, [], turns)
        watched_cpu = cpu_of_turns(leader, followers, turns)
        figures[f"observer_ratio_{WATCHERS}_on_2"] = watched_cpu / none
    return figures


def cpu_of_turns(leader: Served, followers: Sequence[Served], turns: int) -> float:
    """Returns the leader's seconds of CPU time for a turn, with the watchers spread over followers."""
    with ExitStack() as stack:
        with on_half(1):
            sides = [
                stack.enter_context(running(watch_quietly, each.url, WATCHERS // len(followers), turns))
                for each in followers
            ]
        with on_half(0):
            writing = stack.enter_context(running(write, leader.url, turns))
        for each in (*sides, writing):
            assert each.pipe.recv() == "ready"
        with Measuring(leader.pid) as measuring:
            writing.pipe.send("go")
            writing.pipe.recv()
        for each in sides:
            each.pipe.recv()
        return measuring.run(turns).cpu


TRANSACTIONS: Final = """
SELECT xact_commit + xact_rollback, numbackends FROM pg_stat_database WHERE datname = current_database()
"""


def measure_idle(server: Any, scale: float) -> dict[str, float]:
    """Returns one round of what daemons without clients ask of their database."""
    seconds = max(5.0, 30 * scale)
    with cluster(server, 3) as daemons, server.connect() as beside:
        time.sleep(seconds)  # the database counts what it has done some seconds later
        before, _ = beside.execute(TRANSACTIONS).fetchone()
        time.sleep(seconds)
        after, connections = beside.execute(TRANSACTIONS).fetchone()
    return {
        "idle_transactions": (after - before) / len(daemons) / seconds,
        "idle_connections": connections - 1,
    }


# -- without a leader ---------------------------------------------------------------------------------


async def gap(urls: Sequence[str], how: signal.Signals) -> float:
    """Returns the longest milliseconds between two acceptances while the leader is killed or ended."""
    longest, latest = 0.0, 0.0
    async with dataspace.connect(urls, name="bench writer") as space:

        async def leader() -> int:
            return int(str((await space.status())["process"]))

        await space.send(Record("tick", -1))
        await trio.sleep(0.5)  # until the others have read all
        ended = await leader()
        for n in range(1_000_000):
            await space.send(Record("tick", n))
            now = time.perf_counter()
            longest, latest = max(longest, now - latest if n else 0.0), now
            if n == AMID:
                os.kill(ended, how)
            elif n > AMID and n % AMID == 0:
                if await leader() != ended:
                    break
                latest = time.perf_counter()
    return longest * 1000


# -- while another space moves ------------------------------------------------------------------------


async def steady(url: str, space: str, report: Connection) -> None:
    """Makes a turn each 5 ms; reports the longest milliseconds between two acceptances, less these 5 ms,
    since the last report."""
    longest, latest, at = 0.0, time.perf_counter(), ""
    async with dataspace.connect(url, space=space, name="bench steady") as session:
        report.send("ready")
        while True:
            await session.send(Record("tick"))
            now = time.perf_counter()
            longest, latest = max(longest, now - latest - STEADY), now
            if report.poll():
                at = report.recv()
                report.send((at, longest * 1000))
                longest, latest = 0.0, time.perf_counter()
            await trio.sleep(STEADY)


async def fill(url: str, space: str, facts: int) -> None:
    """Asserts so many facts of an owner that survives its session."""
    async with dataspace.connect(url, space=space, owner="bench") as session:
        tickets = []
        for first in range(0, facts, LOADED):
            draft = session.draft()
            for n in range(first, min(first + LOADED, facts)):
                draft.assert_(Record("reading", f"device {n % 1000}", n, n / 7, VALUE))
            tickets.append(await session.submit(draft))
        for ticket in tickets:
            await ticket.wait()


def measure_moves(server: Any, place: str, facts: int) -> dict[str, float]:
    """Returns one round of how long a client of another space waits while a large space moves, there and
    back."""
    spaces = "".join(
        f'[spaces.{name}]\nprefer = "{prefer}"\n'
        for name, prefer in (("a", "one"), ("b", "two"), ("c", "two"))
    )
    with server.schema() as schema, ExitStack() as stack:
        address, daemons = server.url(schema), []
        for name in ("one", "two"):
            path = Path(place, f"{schema}-{name}.toml")
            path.write_text(f'cluster.name = "{name}"\ncluster.lease = "{LEASE:g}s"\n{spaces}[spaces.big]\n')
            served = serving_on(address, options=("--config", str(path), "--data"))
            daemons.append(stack.enter_context(served))
        wait_led(address, {"a": "one", "b": "two", "c": "two"})
        move(StoreAddress.parse(address), "big", "one", patience=PATIENCE)  # it may have been spared
        trio.run(fill, daemons[0].url, "big", facts)
        sides = [
            stack.enter_context(running(steady, each.url, space))
            for each, space in zip(daemons, "ab", strict=True)
        ]
        for each in sides:
            assert each.pipe.recv() == "ready"
        figures = {"moved_other_ms": 0.0, "moved_pause_ms": 0.0, "still_other_ms": 0.0}
        for successor in ("two", "one"):
            longest(sides)
            began = time.perf_counter()
            moved = move(StoreAddress.parse(address), "big", successor, patience=PATIENCE)
            figures["moved_pause_ms"] = max(figures["moved_pause_ms"], 1000 * (moved.pause or 0.0))
            took = time.perf_counter() - began
            time.sleep(1.0)  # the old leader frees what it had
            figures["moved_other_ms"] = max(figures["moved_other_ms"], *longest(sides))
            time.sleep(took)
            figures["still_other_ms"] = max(figures["still_other_ms"], *longest(sides))
        return figures


def longest(sides: Sequence[Side]) -> list[float]:
    """Returns the longest milliseconds of each ``steady`` since the last call."""
    for each in sides:
        each.pipe.send("")
    return [each.pipe.recv()[1] for each in sides]


def wait_led(address: str, leaders: Mapping[str, str]) -> None:
    """Returns once these spaces are led by these daemons."""
    while True:
        led = {each.space: each.leader for each in seen(StoreAddress.parse(address)).spaces}
        if all(led.get(space) == leader for space, leader in leaders.items()):
            return
        time.sleep(0.1)


# -- beside etcd --------------------------------------------------------------------------------------


def measure_lives(server: Any, place: str, scale: float) -> dict[str, float]:
    """Returns one round beside etcd, if it is there, and of leaders that end."""
    with cluster(server, 3) as daemons:
        time.sleep(1.0)
        figures: dict[str, float] = {}
        try:
            figures |= measure_beside(server, daemons, place, scale)
        except Missing as missing:
            print(f"without etcd: {missing}")
        urls = [each.url for each in daemons]
        figures["ended_ms"] = trio.run(gap, urls, signal.SIGTERM)
        figures["killed_over_lease_ms"] = trio.run(gap, urls, signal.SIGKILL) - LEASE * 1000
    return figures


def measure_beside(server: Any, daemons: Sequence[Served], place: str, scale: float) -> dict[str, float]:
    """Returns one round of ours ÷ etcd's; raises ``Missing``."""
    turns, count = max(100, int(20_000 * scale)), max(40, int(CHANGES * scale))
    with members(3, place) as served:
        theirs = run_of_all(served[0], served, ETCD.write, ETCD.watch, turns)
        their_p50, _ = latency(ETCD.tick, ETCD.hear, served[0].url, count)
        before, there = leader_of(served[1].url), served[1].url
        os.kill(served[0].pid, signal.SIGKILL)
        began = time.perf_counter()
        while leader_of(there) in ("", before) or not puts(there):
            time.sleep(0.005)
        killed = time.perf_counter() - began
    ours = run_of_all(daemons[0], daemons, write, watch_all, turns, server)
    our_p50, _ = latency(tick, hear, daemons[0].url, count)
    return {
        "etcd_turns_ratio": ours.rate / theirs.rate,
        "etcd_seen_p50_ratio": our_p50 / their_p50,
        "etcd_cpu_ratio": ours.cpu / theirs.cpu,
        "etcd_killed_ms": killed * 1000,
    }


def run_of_all(
    leader: Served,
    processes: Sequence[Served],
    writes: Callable[..., Any],
    watches: Callable[..., Any],
    turns: int,
    server: Any = None,
) -> Run:
    """As ``run_of_turns`` with one watcher, with the CPU time of all processes, and of PostgreSQL's."""
    with running(watches, leader.url, 1, turns) as watching, running(writes, leader.url, turns) as writing:
        for each in (watching, writing):
            assert each.pipe.recv() == "ready"
        pids = [each.pid for each in processes]
        with Measuring(*pids, *([] if server is None else server.processes())) as measuring:
            writing.pipe.send("go")
            for each in (watching, writing):
                each.pipe.recv()
        return measuring.run(turns)


def measure(server: Any, place: str, quick: bool, facts: int, *, reverse: bool) -> dict[str, float]:
    """Returns one round of all figures."""
    scale = 0.02 if quick else 1.0
    return {
        **measure_commits(server, max(50, int(2000 * scale))),
        **measure_groups(server, place, scale, reverse=reverse),
        **measure_followers(server, scale),
        **measure_lives(server, place, scale),
        **measure_moves(server, place, int(scale * facts)),
        **measure_idle(server, scale),
    }


def main() -> None:
    parser = command_line(__doc__, rounds=5)
    parser.add_argument("--facts", type=int, default=FACTS, help="facts of the space that moves")
    args = parser.parse_args()
    if programs() is None:
        print(f"nothing is measured: {NONE}")
        show({}, as_json=args.json)
        return
    from tests.postgres.servers import Servers  # it imports psycopg

    if args.quick:
        signal.signal(signal.SIGALRM, _give_up)
        signal.alarm(PATIENCE)
    with closing(Servers()) as servers:
        server = servers.new().start()
        rounds = [
            measure(server, str(servers.place), args.quick, args.facts, reverse=bool(number % 2))
            for number in range(1 if args.quick else args.rounds)
        ]
    figures = {
        name: (max if name in LONGEST else statistics.median)([each[name] for each in rounds])
        for name in rounds[0]
    }
    show(figures, as_json=args.json, note=f"median of {len(rounds)}; {os.cpu_count()} cores")


def _give_up(*_: object) -> None:
    sys.exit(f"not done after {PATIENCE} s")


if __name__ == "__main__":
    main()
