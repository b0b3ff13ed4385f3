"""Lives lives: ``python -m tests.simulation --seeds 1000``, or ``--seed 7 --trace`` for one of them.

A life that goes wrong is shrunk, and the command that lives what is left of it is printed.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.occurrences import Kind, Total, table
from tests.simulation.plan import Plan
from tests.simulation.planted import PLANTED
from tests.simulation.runs import Result, kinds, one, results
from tests.simulation.scheduling import check_trio
from tests.simulation.shrinking import Less, shrink

_now = time.monotonic


def main() -> int:
    """Does as told; returns 1 if anything went wrong."""
    args = _parser().parse_args()
    check_trio()
    if args.seed is not None:
        less = Less(_places(args.without_actors), _places(args.without_faults), args.calm, args.kind)
        return _show(less.plan(args.seed), args.plant, trace=args.trace)
    return _run(range(args.first, args.first + args.seeds), args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many lives (default 100)")
    parser.add_argument("--first", type=int, default=1, help="the seed of the first (default 1)")
    parser.add_argument("--processes", type=int, default=2, help="that live them (default 2)")
    parser.add_argument("--progress", type=int, default=1000, help="say so after so many (default 1000)")
    parser.add_argument("--digests", action="store_true", help="print what each life came to")
    parser.add_argument("--keep-going", action="store_true", help="go on after a life that went wrong")
    parser.add_argument("--plant", choices=PLANTED, help="with this mistake in the product")
    for kind, said in (
        (Kind.MEMORY, "with logs and journals in memory"),
        (Kind.FOLLOWERS, "the same, and several daemons"),
        (Kind.CLUSTER, "with several daemons over a store"),
    ):
        parser.add_argument(
            kind.value, dest="kind", action="store_const", const=kind, default=Kind.FILES, help=said
        )
    parser.add_argument("--seed", type=int, help="live this life alone")
    parser.add_argument("--trace", action="store_true", help="print all that happens in it")
    parser.add_argument("--without-actors", default="", metavar="N,…", help="leave out some actors")
    parser.add_argument("--without-faults", default="", metavar="N,…", help="leave out some faults")
    parser.add_argument("--calm", action="store_true", help="in a calm network")
    return parser


def _places(text: str) -> frozenset[int]:
    return frozenset(map(int, filter(None, text.split(","))))


def _show(plan: Plan, plant: str | None, *, trace: bool) -> int:
    outcome = one(plan, plant, keep_trace=trace)
    for line in outcome.trace:
        print(line)
    print(plan)
    print(f"{outcome.digest}: {outcome.events} events, {outcome.epochs} epochs, {outcome.seconds:.1f} s")
    for each in outcome.wrong:
        print(f"WRONG {each}")
    return bool(outcome.wrong)


def _run(seeds: range, args: argparse.Namespace) -> int:
    total, wrong = Total(_now(), args.kind), False
    for result in results(seeds, args.processes, args.plant, args.kind):
        total.add(result)
        if args.digests:
            print(result.seed, result.digest, result.events, result.epochs, flush=True)
        if result.wrong:
            wrong = True
            _report(result, args.plant, args.kind)
            if not args.keep_going:
                break
        if total.lives % args.progress == 0 and total.lives < len(seeds):
            print(f"seeds {seeds[0]} to {result.seed}: {total.summary(_now())}", flush=True)
            print(f"  to go on from here: --first {result.seed + 1}", flush=True)
    print(total.summary(_now()), *table(total.counts, args.kind), sep="\n")
    for each in total.missing:
        print(f"WRONG in {total.lives} lives there were no {each}")
    return int(wrong or bool(total.missing))


def _report(result: Result, plant: str | None, kind: Kind) -> None:
    print(f"seed {result.seed} went wrong:", *result.wrong[:5], sep="\n  ", flush=True)
    wanted = kinds(result.wrong)
    less = shrink(result.seed, kind, lambda plan: bool(wanted & kinds(one(plan, plant).wrong)))
    print("what is left of it when it is shrunk:", less.plan(result.seed))
    planted = f"--plant {plant} " if plant else ""
    print(
        f"  python -m tests.simulation {planted}--seed {result.seed} {less.arguments()} --trace", flush=True
    )


if __name__ == "__main__":
    sys.exit(main())
