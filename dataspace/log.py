"""The log of a space, opened and read without a daemon (relay/LOG.md).

To trim a daemon's log, or to write a snapshot of it, open it with ``registers=space_registers``, which keep
its sessions and groups.  Reading facts and epochs needs none.
"""

from relay.log.log import Log
from relay.log.reader import LogReader, LogStatistics
from relay.log.retention import Retention
from relay.log.snapshots import RecoveredState
from relay.space_registers import space_registers
from relay.store.errors import LogDamaged, LogFailed

__all__ = [
    "Log",
    "LogReader",
    "LogStatistics",
    "LogDamaged",
    "LogFailed",
    "Retention",
    "RecoveredState",
    "space_registers",
]
