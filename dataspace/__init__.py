"""A dataspace: a shared set of facts; each fact lasts as long as an owner asserts it.

``connect`` (asynchronous) and ``connect_blocking`` open a session with a daemon; ``Record`` makes facts and
messages; patterns are text such as ``present($who)`` or built with ``dataspace.patterns``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataspace.faces import face
from dataspace.version import __version__ as __version__

if TYPE_CHECKING:
    from dataspace.client.blocking.jobs import BlockingJob as BlockingJob, BlockingJobs as BlockingJobs
    from dataspace.client.blocking.live import BlockingLiveMap as BlockingLiveMap
    from dataspace.client.blocking.space import (
        BlockingHold as BlockingHold,
        BlockingLock as BlockingLock,
        BlockingObservation as BlockingObservation,
        BlockingSpace as BlockingSpace,
        connect_blocking as connect_blocking,
    )
    from dataspace.client.connect import Connection as Connection, connect as connect
    from dataspace.client.epochs.tables import LiveChange as LiveChange
    from dataspace.client.holds import Hold as Hold
    from dataspace.client.jobs import Job as Job, Jobs as Jobs
    from dataspace.client.live import LiveMap as LiveMap
    from dataspace.client.locks import Lock as Lock
    from dataspace.client.observations import Observation as Observation
    from dataspace.client.publications import Capability as Capability, Publication as Publication
    from dataspace.client.session.events import (
        ConnectionChange as ConnectionChange,
        ConnectionEvent as ConnectionEvent,
    )
    from dataspace.client.session.turns import Claim as Claim, Draft as Draft, Ticket as Ticket
    from dataspace.client.space import RemoteSpace as RemoteSpace
    from dataspace.client.subscriptions import Subscription as Subscription
    from dataspace.client.typed import (
        TypedChange as TypedChange,
        TypedEpoch as TypedEpoch,
        TypedObservation as TypedObservation,
        TypedRows as TypedRows,
    )
    from dataspace.errors import (
        AnotherSpace as AnotherSpace,
        Broken as Broken,
        Closed as Closed,
        DataspaceError as DataspaceError,
        DeliveryLost as DeliveryLost,
        ExpectationFailed as ExpectationFailed,
        InternalError as InternalError,
        LockLost as LockLost,
        ProtocolError as ProtocolError,
        Refused as Refused,
        SeveralRows as SeveralRows,
        Unreachable as Unreachable,
        UsageError as UsageError,
    )
    from dataspace.kernel.changes import (
        Change as Change,
        EpochChanges as EpochChanges,
        KeyedChange as KeyedChange,
    )
    from dataspace.kernel.expectations import (
        Expectation as Expectation,
        absent as absent,
        exactly as exactly,
        unchanged as unchanged,
    )
    from dataspace.topics.epochs import TopicEpoch as TopicEpoch
    from dataspace.transport.credentials import Tls as Tls
    from index.values.values import Map as Map, Record as Record, Value as Value

__all__, __getattr__ = face(
    __name__,
    {
        "dataspace.client.blocking.jobs": "BlockingJob BlockingJobs",
        "dataspace.client.blocking.live": "BlockingLiveMap",
        "dataspace.client.blocking.space": (
            "BlockingHold BlockingLock BlockingObservation BlockingSpace connect_blocking"
        ),
        "dataspace.kernel.changes": "Change EpochChanges KeyedChange",
        "dataspace.kernel.expectations": "Expectation absent exactly unchanged",
        "dataspace.client.connect": "Connection connect",
        "dataspace.client.holds": "Hold",
        "dataspace.client.jobs": "Job Jobs",
        "dataspace.client.epochs.tables": "LiveChange",
        "dataspace.client.live": "LiveMap",
        "dataspace.client.locks": "Lock",
        "dataspace.client.observations": "Observation",
        "dataspace.client.publications": "Capability Publication",
        "dataspace.client.space": "RemoteSpace",
        "dataspace.client.subscriptions": "Subscription",
        "dataspace.client.typed": "TypedChange TypedEpoch TypedObservation TypedRows",
        "dataspace.client.session.events": "ConnectionChange ConnectionEvent",
        "dataspace.client.session.turns": "Claim Draft Ticket",
        "dataspace.topics.epochs": "TopicEpoch",
        "dataspace.transport.credentials": "Tls",
        "dataspace.errors": (
            "AnotherSpace Broken Closed DataspaceError DeliveryLost ExpectationFailed InternalError LockLost"
            " ProtocolError Refused SeveralRows Unreachable UsageError"
        ),
        "index.values.values": "Map Record Value",
    },
)
