"""``python -m examples.flights``: the daemon, the replay, Spark and the check, by one command.

It ends with 0 if Spark's figures equal the expected ones, with 1 and the differences if they do not or if a
part failed, and with 130 when it was interrupted.

Always: whatever it started is stopped, and whatever it wrote is removed unless ``--keep`` says where to.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import trio
from pyspark.errors import PySparkException

from dataspace import DataspaceError, UsageError
from examples.flights.check import spelled, table
from examples.flights.daemons import Daemons
from examples.flights.display import Display
from examples.flights.flights import MONTHS
from examples.flights.history import ARCHIVE_EVERY, KEEP_FOR
from examples.flights.ruled import RULES
from examples.flights.run import Outcome, Run

EQUAL: Final = 0
DIFFERENT: Final = 1
INTERRUPTED: Final = 130

FLYING: Final = "#/facts?pattern=flight($carrier,$number,_,$from,$to,$scheduled)"
"""Where on the inspector's page the flights that are in the air are."""


def main() -> int:
    """The program; its exit code."""
    code = DIFFERENT
    try:
        code = _demo(_arguments())
    except* (DataspaceError, PySparkException) as errors:
        for error in _leaves(errors):
            print(f"the demo failed: {error}", file=sys.stderr)
    except* KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        print("interrupted", file=sys.stderr)
    return code


def _demo(said: argparse.Namespace) -> int:
    months: int = MONTHS if said.year else said.months
    with ExitStack() as stack:
        folder = said.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dataspace-demo-")))
        _claim(folder, months)
        rules = ["--rules", str(RULES)] if said.rules else []
        followers = said.cluster - 1 if said.cluster else said.followers
        words = ["--archive", str(folder / "archive"), "--keep-for", f"{KEEP_FOR}s"] if said.archive else []
        variables = {"DATASPACE_SERVE_LOG_ARCHIVE_EVERY": f"{ARCHIVE_EVERY}s"} if said.archive else {}
        daemons = Daemons(
            folder,
            *rules,
            *words,
            followers=followers,
            store=said.store,
            inspected=True,
            environment=variables,
        )
        stack.enter_context(daemons)
        daemon, *others = daemons.all
        where = "PostgreSQL" if said.store else folder
        print(f"the daemon listens on {daemon.url} and writes to {where}", flush=True)
        for follower in others:
            print(f"daemon {follower.number} follows it and stands by, on {follower.url}", flush=True)
        if daemon.page:
            print(f"a browser shows its flights while it runs: {daemon.page}{FLYING}", flush=True)
        run = Run(
            folder,
            daemons,
            months=months,
            file=said.file,
            speed=said.speed,
            rules=said.rules,
            archived=said.archive,
        )
        outcome = trio.run(_interruptible, run)
    if outcome is None:
        return INTERRUPTED
    print(summary(outcome))
    if said.speed:
        print(f"flight time was held to {said.speed:g} hours a second; without --speed it goes at full speed")
    return EQUAL if outcome.equal else DIFFERENT


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.flights", description="The demo on real flights."
    )
    parser.add_argument(
        "--months", type=int, default=1, choices=range(1, MONTHS + 1), help="the first so many"
    )
    parser.add_argument("--year", action="store_true", help=f"the same as --months {MONTHS}")
    parser.add_argument(
        "--speed",
        type=float,
        metavar="HOURS",
        help="hours of flight time a second, to be watched (else: full speed)",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep all data there; go on from it if it is there"
    )
    parser.add_argument(
        "--rules", action="store_true", help="derive crowds and missed connections, and judge them"
    )
    parser.add_argument(
        "--archive",
        action="store_true",
        help="archive the log, delete it locally, and ask the archive again once the daemon is stopped",
    )
    parser.add_argument(
        "--followers",
        type=int,
        default=0,
        choices=range(5),
        help="so many more daemons follow the first one and stand by; the leader is killed three times",
    )
    parser.add_argument(
        "--cluster",
        type=int,
        default=0,
        choices=range(2, 6),
        help="so many daemons over the store; the leader is killed three times, at random moments",
    )
    parser.add_argument(
        "--store", default="", metavar="URL", help="an empty store in PostgreSQL for --cluster"
    )
    parser.add_argument("--file", type=Path, help="another file of flights than the installed one")
    said = parser.parse_args()
    if bool(said.cluster) != bool(said.store) or (said.cluster and said.followers):
        parser.error("--cluster and --store URL belong together, without --followers")
    return said


def _claim(folder: Path, months: int) -> None:
    """Makes the folder one of ``months`` months; raises ``UsageError`` if it is of another number already.

    The turns at the end of the last month would be other ones, under numbers that were taken.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / "months"
    before = int(mark.read_text()) if mark.exists() else months
    if before != months:
        raise UsageError(f"{folder} holds a demo of {before} months, it cannot go on with {months}")
    mark.write_text(str(months))


async def _interruptible(run: Run) -> Outcome | None:
    """The outcome of a run, or None when SIGINT or SIGTERM ended it."""
    outcome = None
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at, signals, nursery.cancel_scope)
            outcome = await run.run(Display(sys.stdout))
            nursery.cancel_scope.cancel()
    return outcome


async def _cancel_at(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


def summary(outcome: Outcome) -> str:
    """The comparison, the rates and the daemon's memory, as they are printed at the end."""
    replayed = f"{spelled(outcome.sent)} changes in {outcome.replay_seconds:.1f} s"
    counted = f"{spelled(outcome.rows)} rows in {outcome.seconds:.1f} s"
    different = sum(not line.equal for line in outcome.lines)
    verdict = f"DIFFERENT in {different} of" if different else "equal in all"
    judged = [str(each) for each in (outcome.verdict, outcome.delays) if each]
    handed = [f"  {each}" for each in outcome.hand_overs]
    killed = [f"the leader was killed {len(handed)} times:", *handed] if handed else []
    return "\n".join(
        [
            "",
            table(outcome.lines),
            "",
            f"replay to the daemon's disk: {replayed}{_rate(outcome.sent, outcome.replay_seconds)}",
            f"replay to counted by Spark:  {counted}{_rate(outcome.rows, outcome.seconds)}",
            f"the daemon's peak of resident memory: {outcome.memory / 1e6:.0f} MB",
            *killed,
            f"Spark's figures and the expected ones are {verdict} {len(outcome.lines)} figures",
            *judged,
            *([str(outcome.history)] if outcome.history else []),
        ]
    )


def _rate(count: int, seconds: float) -> str:
    return f", {spelled(count / seconds)} a second" if count and seconds else ""


def _leaves(errors: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The errors inside nested groups."""
    found: list[BaseException] = []
    for error in errors.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


if __name__ == "__main__":
    sys.exit(main())
