"""The long form of the fuzzer, with its report; see ``fuzzing``."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.abuse.fuzzing import EVERY, Fuzzing


def main() -> None:
    """Runs it as the options say."""
    parser = argparse.ArgumentParser(prog="python -m tests.abuse", description=__doc__)
    parser.add_argument("--packets", type=int, default=1_000_000, help="to send (default a million)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--every", type=int, default=EVERY, help=f"bundles between two steps of innocents (default {EVERY})"
    )
    args = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        fuzzing = Fuzzing(Path(place), args.seed, every=args.every)
        fuzzing.run(args.packets)
    print(fuzzing.report())
    print(f"{time.monotonic() - begun:.0f} s; attackers changed nothing and learned nothing")


if __name__ == "__main__":
    main()
