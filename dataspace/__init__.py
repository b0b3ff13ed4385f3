"""A dataspace: a shared room of facts that last as long as whoever asserted them keeps them up.

``connect`` (asynchronous, trio) and ``connect_blocking`` reach a daemon; ``Record`` makes facts and
messages; patterns are text such as ``present($who)`` or built with ``index.patterns``.

What is exported is imported when it is first used: a Spark executor that wants one plain link should not
load an event loop.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from dataspace.siblings import check as _check

if TYPE_CHECKING:
    from dataspace.client.blocking import BlockingObservation, BlockingSpace, connect_blocking
    from dataspace.client.changes import Change, EpochChanges
    from dataspace.client.connecting import connect
    from dataspace.client.observations import Observation
    from dataspace.client.publications import Capability, Publication
    from dataspace.client.space import RemoteSpace
    from dataspace.client.subscriptions import Subscription, TopicEpoch
    from dataspace.client.turns import Claim, Draft, Ticket
    from dataspace.credentials import Tls
    from dataspace.errors import (
        Broken,
        Closed,
        DataspaceError,
        InternalError,
        ProtocolError,
        Refused,
        Unreachable,
        UsageError,
    )
    from index.values import Map, Record, Value

_check()

__version__ = "0.1.0"

_HOMES = {
    "dataspace.client.blocking": ("BlockingObservation", "BlockingSpace", "connect_blocking"),
    "dataspace.client.changes": ("Change", "EpochChanges"),
    "dataspace.client.observations": ("Observation",),
    "dataspace.client.connecting": ("connect",),
    "dataspace.client.space": ("RemoteSpace",),
    "dataspace.client.publications": ("Capability", "Publication"),
    "dataspace.client.subscriptions": ("Subscription", "TopicEpoch"),
    "dataspace.client.turns": ("Claim", "Draft", "Ticket"),
    "dataspace.credentials": ("Tls",),
    "dataspace.errors": (
        "Broken",
        "Closed",
        "DataspaceError",
        "InternalError",
        "ProtocolError",
        "Refused",
        "Unreachable",
        "UsageError",
    ),
    "index.values": ("Map", "Record", "Value"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BlockingObservation",
    "BlockingSpace",
    "Broken",
    "Capability",
    "Change",
    "Claim",
    "Closed",
    "DataspaceError",
    "Draft",
    "EpochChanges",
    "InternalError",
    "Map",
    "Observation",
    "ProtocolError",
    "Publication",
    "Record",
    "Refused",
    "RemoteSpace",
    "Subscription",
    "Ticket",
    "Tls",
    "TopicEpoch",
    "Unreachable",
    "UsageError",
    "Value",
    "connect",
    "connect_blocking",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'dataspace' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
