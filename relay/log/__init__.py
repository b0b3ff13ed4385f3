"""The log of a space: every epoch, in order, on disk, and what was told then.

LOG.md, in the folder above, describes it byte by byte.  This package is apart from the rest of ``relay``
because a log can be opened, read and verified without a daemon, an event loop or a socket.
"""

from relay.log.log import Log
from relay.log.reader import LogReader, LogStatistics
from relay.log.refusals import LogDamaged, LogFailed
from relay.log.retention import Retention
from relay.log.snapshots import RecoveredState

__all__ = ["Log", "LogDamaged", "LogFailed", "LogReader", "LogStatistics", "RecoveredState", "Retention"]
