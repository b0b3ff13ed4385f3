"""``python -m dataspace.spark PROGRAM``: runs the demo, an example, or the compilation of PySpark's archives.

The programs are in packages that have other names where they are installed; this command is the same in both.
"""

from __future__ import annotations

import runpy
import sys
from pkgutil import iter_modules
from typing import Final

from relay.spark import demo, examples, tuning

PROGRAMS: Final = {
    "demo": demo.__name__,
    "bytecode": f"{tuning.__name__}.bytecode",
    **{
        f"examples.{found.name}": f"{examples.__name__}.{found.name}"
        for found in iter_modules(examples.__path__)
        if found.name != "common"
    },
}
"""What may be run, and the module that it is."""


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
