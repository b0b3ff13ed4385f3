"""A daemon of the level before the latest: ``python -m tests.upgrade.older serve …``.

It knows neither the notes nor the options of groups that the latest level brought, and tells its store so.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any, Final

from dataspace.wire import consuming
from relay.log import notes
from relay.store import levels

OLDER: Final = ("-m", "tests.upgrade.older")
"""The program of such a daemon."""

LATER_KINDS: Final = frozenset(["group-parked"])
LATER_OPTIONS: Final = frozenset(["most_out", "rate", "exclusive", "kinds", "priority"])


def make_older(*modules: Any) -> None:
    """Takes what the latest level brought from modules that no other one has copied from yet."""
    levels_, notes_, consuming_ = modules
    levels_.LATEST -= 1
    notes_.KINDS -= LATER_KINDS
    consuming_.OPTIONS -= LATER_OPTIONS


if __name__ == "__main__":
    make_older(levels, notes, consuming)
    sys.argv[0] = "dataspace"
    runpy.run_module("dataspace", run_name="__main__", alter_sys=True)
