"""The long form of the torture, with its table; see ``torture``."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

import trio

from tests.guarantees.validators import broken
from tests.torture.torture import Torture


def main() -> None:
    """Runs it as told."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of the daemon (default 200)")
    parser.add_argument("--clients", type=int, default=20, help="clients killed (default 20)")
    parser.add_argument("--each-point", type=int, default=4, help="times for each named point (default 4)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG, format="%(relativeCreated)8.0f ms  %(message)s")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        torture = Torture(Path(place) / "data", args.seed)
        load = trio.run(torture.run, args.kills, args.clients, args.each_point)
    print(torture.table())
    done = ", ".join(f"{count} {what}" for what, count in load.statistics().items())
    print(f"{done} in {time.monotonic() - begun:.0f} s")
    torture.check()
    if wrong := broken(load.notes.history):
        sys.exit("\n".join(wrong))
    print("no promise is broken")


if __name__ == "__main__":
    main()
