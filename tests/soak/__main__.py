"""The long form; see ``soak``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import trio

from tests.soak.soak import Soak


def main() -> int:
    """Runs it as long as told; returns 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=8.0, help="how long (default 8)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        soak = Soak(Path(place) / "data", args.seed)
        wrong = trio.run(soak.run, args.hours * 3600)
    print(soak.report())
    for each in wrong:
        print(f"WRONG: {each}")
    if not wrong:
        print(
            f"{args.hours:g} hours: memory, descriptors, threads, disk and latency are flat, the log is whole"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
