"""What PostgreSQL promises of a commit that has returned, in words for operators."""

from __future__ import annotations

from typing import Final, NamedTuple

SETTINGS: Final = """
    current_setting('fsync'), current_setting('synchronous_standby_names'),
    (SELECT count(*) FROM pg_stat_replication WHERE coalesce(sync_state, 'sync') IN ('sync', 'quorum'))"""
"""Columns of a ``Durability``.  Roles without ``pg_read_all_stats`` see standbys, but not their state."""


class Durability(NamedTuple):
    """The settings that decide what a crash or a failover of the database may lose."""

    fsync: str
    synchronous: str
    """As in ``synchronous_standby_names``."""
    connected: int
    """Synchronous standbys that are connected; all standbys, where their state is not shown."""

    @property
    def words(self) -> str:
        """Returns the promise in words."""
        if self.fsync != "on":
            return "fsync is off: a crash of the database's machine may lose or damage acknowledged turns"
        if not self.synchronous.strip():
            return "a failover of the database may lose acknowledged turns: it has no synchronous standby"
        if not self.connected:
            return "turns wait: no synchronous standby of the database is connected"
        return "a synchronous standby has all acknowledged turns"

    @property
    def holds(self) -> bool:
        """True unless acknowledged turns may be lost, or wait."""
        return self.fsync == "on" and bool(self.synchronous.strip()) and self.connected > 0
