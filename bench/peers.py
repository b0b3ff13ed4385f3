"""How does the daemon compare with servers that are used for the same things?

The same scenarios for each, on loopback TCP with writer and watchers in processes of their own, and values
of 64 bytes: this daemon, NATS (core and its key-value store), Redis, etcd, and a *floor*, a bare trio and
msgpack server.  Peers are found on the PATH or in the packages of ``bench/peers.txt``; one that is missing
is left out, with a sentence.

    one watcher      one writer, one watcher, pipelined changes of one fact or key each
    100 watchers     on 100 connections
    change → seen    from a writer's call to a watcher's hands, one change at a time
    1 000 clients    until an observer has seen the last one go
    a watch          each of 10 000 of one key each, on 10 connections (NATS KV: of 500)
    a client         what a message costs clients in Python, with --clients: ours and the peers' own

Peers are spoken to over plain sockets, by clients that count what comes and decode no value; ours are the
real clients, which decode each change with its captures.  So rates of peers are bounded by their servers, and
ours mostly by the clients.  CPU time is that of all threads of the server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Final

from bench._clients import measure_clients, table as table_of_clients
from bench._fanout import WATCHERS, memory_of, run_of_turns
from bench._figures import command_line
from bench._latency import latency
from bench._leaving import leave
from bench._systems.etcd import ETCD
from bench._systems.nats import CORE, VALUES
from bench._systems.own import ANNOUNCER, FLOOR, OWN
from bench._systems.redis import REDIS
from bench._systems.system import Missing, System

SYSTEMS: Final = {"own": OWN, "etcd": ETCD, "kv": VALUES, "nats": CORE, "redis": REDIS, "floor": FLOOR}
FIGURES: Final = {
    "single_turn_cpu_us": "one watcher: µs of the server's CPU for a change",
    "single_turns_per_s": "one watcher: changes a second",
    "fanout_cpu_us": "100 watchers: µs of the server's CPU for an event",
    "fanout_events_per_s": "100 watchers: events a second",
    "latency_p50_ms": "change → seen, ms, median",
    "latency_p99_ms": "change → seen, ms, 99 of 100",
    "kill_1000_ms": "1 000 clients killed: ms until all was seen",
    "close_1000_ms": "1 000 clients leave in order: ms",
    "bytes_per_observation": "bytes for a watch of one key",
}
PROMISES: Final = {
    "durable": "acknowledged means on disk",
    "state": "a late watcher gets the state",
    "patterns": "what is watched",
    "captures": "captures",
    "presence": "what a client stated ends",
}
RATES: Final = ("single_turns_per_s", "fanout_events_per_s")


def measure(system: System, scale: float) -> dict[str, float]:
    """Returns one round of all figures of one system; raises ``Missing``."""
    many, few = int(20_000 * scale), int(2000 * scale)
    with system.serve() as served:
        single = run_of_turns(served, system.write, system.watch, 1, many)
    with system.serve() as served:
        fanout = run_of_turns(served, system.write, system.watch, WATCHERS, few)
    with system.serve() as served:
        p50, p99 = latency(system.tick, system.hear, served.url, few)
    figures = {
        "single_turn_cpu_us": single.cpu * 1e6,
        "single_turns_per_s": single.rate,
        "fanout_cpu_us": fanout.cpu / WATCHERS * 1e6,
        "fanout_events_per_s": fanout.rate * WATCHERS,
        "latency_p50_ms": p50,
        "latency_p99_ms": p99,
    }
    if system.crowd is not None and system.observe is not None:
        for way in ("kill", "close"):
            with (ANNOUNCER if system is FLOOR else system.serve)() as served:
                took = leave(way, system.crowd, system.observe, served.url, int(1000 * scale))
                figures[f"{way}_1000_ms"] = took
    if system.open_all is not None:
        with system.serve() as served:
            count = int(system.observations * max(scale, 0.1))
            figures["bytes_per_observation"] = memory_of(served, system.open_all, count, shared=False)
    return figures


def measure_all(names: Sequence[str], rounds: int, scale: float) -> dict[str, dict[str, float]]:
    """Returns the best of the rounds of each system that is there; says which are not."""
    best: dict[str, dict[str, float]] = {}
    missing: set[str] = set()
    for _ in range(rounds):
        for name in names:
            if name in missing:
                continue
            try:
                figures = measure(SYSTEMS[name], scale)
            except Missing as error:
                missing.add(name)
                print(f"{SYSTEMS[name].name} is left out: {error}", flush=True)
                continue
            known = best.setdefault(name, {})
            for figure, value in figures.items():
                better = max if figure in RATES else min
                known[figure] = better(known.get(figure, value), value)
    return best


def table(best: dict[str, dict[str, float]]) -> str:
    """Returns the figures and the promises as a table of Markdown, a column for each system."""
    lines = [f"| | {' | '.join([SYSTEMS[name].name for name in best])} |", f"|---|{'---|' * len(best)}"]
    for figure, text in FIGURES.items():
        cells = [_shown(figures[figure]) if figure in figures else "–" for figures in best.values()]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    for promise, text in PROMISES.items():
        cells = [getattr(SYSTEMS[name].promises, promise) for name in best]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def main() -> None:
    arguments = command_line(__doc__, quick="one round of a twentieth of the work")
    arguments.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="SYSTEM")
    arguments.add_argument("--clients", action="store_true", help="measure clients in Python, and no server")
    args = arguments.parse_args()
    if args.clients:
        figures = measure_clients(3_000, 1) if args.quick else measure_clients(60_000, args.rounds)
        print(table_of_clients(figures))
        if args.json:
            print(json.dumps({name: round(value, 3) for name, value in figures.items()}))
        return
    best = measure_all(args.only, 1, 0.05) if args.quick else measure_all(args.only, args.rounds, 1.0)
    print(table(best))
    print(f"{os.cpu_count()} cores; best of {1 if args.quick else args.rounds}")
    if args.json:
        flat = {f"{name}_{each}": value for name, figures in best.items() for each, value in figures.items()}
        print(json.dumps({name: round(value, 3) for name, value in flat.items()}))


if __name__ == "__main__":
    main()
