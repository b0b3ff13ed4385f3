"""The log of a space, opened and read without a daemon (relay/LOG.md)."""

from relay.log.log import Log
from relay.log.reader import LogReader, LogStatistics
from relay.log.retention import Retention
from relay.log.snapshots import RecoveredState
from relay.store.errors import LogDamaged, LogFailed

__all__ = [
    "Log",
    "LogReader",
    "LogStatistics",
    "LogDamaged",
    "LogFailed",
    "Retention",
    "RecoveredState",
]
