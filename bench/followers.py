"""What does it cost to show epochs only once they are on disk?

A daemon with ``show = "durable"`` and one with ``show = "committed"`` take turns within each round, in either
order; writer and watchers are processes of their own, with the real client.  A figure is the median of the
ratios of the rounds, the gate ÷ without, so it says little of what else the machine does.

    gate_turns_ratio             turns a second, pipelined, from the first to the last one seen by one watcher
    gate_turns_ratio_20          the same with 20 watchers
    gate_turn_cpu_ratio          CPU time of the daemon for such a turn, with one watcher; ``…_20`` with 20
    gate_seen_p50_ratio, _p99    from the call of a writer to the watcher, one change at a time
"""

from __future__ import annotations

import os
import statistics
from typing import Final

from bench._fanout import run_of_turns, watch_all, write
from bench._figures import command_line, show
from bench._latency import hear, latency, tick
from bench._processes import daemons_of, serving

TURNS: Final = 8_000
CHANGES: Final = 400
MANY: Final = 20
SHOWN: Final = ("durable", "committed")


def measure(quick: bool, *, reverse: bool) -> dict[str, float]:
    """Returns the figures of one round, the gate ÷ without."""
    scale = 0.02 if quick else 1.0
    found = {each: measure_one(each, scale) for each in (SHOWN if not reverse else tuple(reversed(SHOWN)))}
    gated, plain = found["durable"], found["committed"]
    return {name: gated[name] / plain[name] for name in gated}


def measure_one(shown: str, scale: float) -> dict[str, float]:
    """Returns what a daemon does that shows what is ``durable``, or ``committed``."""
    figures: dict[str, float] = {}
    with daemons_of({**os.environ, "DATASPACE_SERVE_SHOW": shown}):
        for name, watchers, turns in (("", 1, TURNS), (f"_{MANY}", MANY, TURNS // 4)):
            with serving() as served:
                run = run_of_turns(served, write, watch_all, watchers, max(40, int(turns * scale)))
            figures |= {f"gate_turns_ratio{name}": run.rate, f"gate_turn_cpu_ratio{name}": run.cpu}
        with serving() as served:
            p50, p99 = latency(tick, hear, served.url, max(40, int(CHANGES * scale)))
    return figures | {"gate_seen_p50_ratio": p50, "gate_seen_p99_ratio": p99}


def main() -> None:
    args = command_line(__doc__, rounds=9).parse_args()
    rounds = [
        measure(args.quick, reverse=bool(number % 2)) for number in range(1 if args.quick else args.rounds)
    ]
    figures = {name: statistics.median([each[name] for each in rounds]) for name in rounds[0]}
    show(figures, as_json=args.json, note=f"median of {len(rounds)}; {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
