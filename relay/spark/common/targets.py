"""Peers: which daemon to talk to, and as whom.

All that is needed to open a link, settled on the driver: executors run elsewhere, where neither the
environment nor the file of a token need be the same.

Always: no token is part of a ``repr``, and so of no plan, log or error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from dataspace.client.bulk.client import Link
from dataspace.transport.credentials import Tls
from dataspace.wire.features import MAIN

SYSTEM_TLS: Final = Tls()
"""Whom the system trusts, and no certificate of one's own."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A daemon, one of its spaces, and what is shown to it."""

    url: str
    token: str = field(default="", repr=False)
    tls: Tls = SYSTEM_TLS
    space: str = MAIN

    def link(self) -> Link:
        """A new link; raises what ``Link`` does."""
        return Link(self.url, name="spark", space=self.space, token=self.token, tls=self.tls)
