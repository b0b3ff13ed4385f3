"""Planted defects: which do the generated tests find?

python -m tests.planted [NAME ...] [--seconds 60]       one after the other, all or these
python -m tests.planted --keep FILE                     the same, without those that FILE has results of
python -m tests.planted run NAME MODULE [ARGUMENT ...]  a module, as ``python -m``, with this defect
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from pathlib import Path

from tests.planted.defects import DEFECTS
from tests.planted.planting import plant


def main(arguments: list[str]) -> int:
    """Returns the exit status: of the module that was run, or 1 if too few defects are found."""
    if arguments[:1] == ["run"]:
        return _run(arguments[1], arguments[2:])
    from tests.planted.finding import tabulated

    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("names", nargs="*", help="defects; all of them if none is named")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU for each")
    parser.add_argument("--keep", type=Path, help="a file of results; what is named is run again")
    options = parser.parse_args(arguments)
    defects = [DEFECTS[name] for name in options.names] or DEFECTS.values()
    return tabulated(defects, options.seconds, options.keep, again=bool(options.names))


def _run(name: str, command: list[str]) -> int:
    """Runs a module with a defect, and prints how often its place was executed."""
    planted = plant(DEFECTS[name])
    sys.argv = command
    status: int | str | None = 0
    try:
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code
    print(json.dumps({"executed": planted.executed}))
    return status if isinstance(status, int) else int(status is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
