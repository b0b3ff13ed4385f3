"""The bulk client: one plain blocking socket, without an event loop, for readers of ranges and columns.

    from dataspace.bulk import BulkClient

    with BulkClient("tcp://127.0.0.1:7377") as client:
        frontier = client.frontier()
        for block in client.columns(pattern, after=0, upto=frontier.epoch):
            ...

Spark reads and writes with it; so can any program that keeps its own place in a log, or publishes many facts
as one turn.  ``topic_frontier`` and ``topic_epochs`` read the completed epochs of a durable topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataspace.faces import face

if TYPE_CHECKING:
    from dataspace.client.bulk.blocks import Block as Block
    from dataspace.client.bulk.client import BulkClient as BulkClient
    from dataspace.client.bulk.frontiers import LogFrontier as LogFrontier
    from dataspace.client.bulk.packed import PackedColumns as PackedColumns, Pairs as Pairs
    from dataspace.client.bulk.topics import (
        topic_acknowledge as topic_acknowledge,
        topic_epochs as topic_epochs,
        topic_frontier as topic_frontier,
        topic_number as topic_number,
    )
    from dataspace.client.completed import CompletedEpoch as CompletedEpoch, TopicFrontier as TopicFrontier

__all__, __getattr__ = face(
    __name__,
    {
        "dataspace.client.bulk.blocks": "Block",
        "dataspace.client.bulk.client": "BulkClient",
        "dataspace.client.bulk.frontiers": "LogFrontier",
        "dataspace.client.bulk.packed": "PackedColumns Pairs",
        "dataspace.client.bulk.topics": "topic_acknowledge topic_epochs topic_frontier topic_number",
        "dataspace.client.completed": "CompletedEpoch TopicFrontier",
    },
)
