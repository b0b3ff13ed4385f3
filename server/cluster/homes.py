"""Which home a daemon has by its configuration, and how it reaches its leader there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.store.address import StoreAddress
from server.cluster.directory.contact import DirectoryContact
from server.cluster.directory.home import DirectoryHome

if TYPE_CHECKING:
    from server.config.model import Config
    from server.home import Home, LeaderContact
    from server.sessions.state import DaemonState


def home_of(config: Config, before: Home | None = None) -> Home:
    """Returns the home that ``data`` names; ``before`` is the home of this process until now."""
    if isinstance(config.data, StoreAddress):
        from server.cluster.database.store import StoreHome  # psycopg is loaded where it is used

        return StoreHome(config, config.data, before if isinstance(before, StoreHome) else None)
    return DirectoryHome(config)


def contact_of(daemon: DaemonState) -> LeaderContact:
    """Returns how a daemon keeps in touch with its leader, while it follows."""
    if isinstance(daemon.home, DirectoryHome):
        return DirectoryContact(daemon, daemon.home.directory)
    from server.cluster.database.contact import StoreContact  # as above
    from server.cluster.database.store import StoreHome

    assert isinstance(daemon.home, StoreHome)  # there is no third one
    return StoreContact(daemon, daemon.home)
