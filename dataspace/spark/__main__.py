"""``python -m dataspace.spark bytecode``: compiles PySpark's archives; its processes start twice as fast.

The program is in a package that has another name where it is installed; this command is the same in both.
"""

from __future__ import annotations

import runpy
import sys
from typing import Final

from relay.spark import tuning

PROGRAMS: Final = {"bytecode": f"{tuning.__name__}.bytecode"}
"""Programs by their names, with their modules."""


def main() -> int:
    """Runs the program that the first argument names, with the others; returns 2 if there is none."""
    name = sys.argv.pop(1) if len(sys.argv) > 1 else "no program"
    if name not in PROGRAMS:
        print(f"dataspace: {name}: not one of {', '.join(PROGRAMS)}", file=sys.stderr)
        return 2
    runpy.run_module(PROGRAMS[name], run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
