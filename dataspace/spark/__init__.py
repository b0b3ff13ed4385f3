"""Spark: a dataspace as a source and a sink of DataFrames (relay/spark/SPARK.md).

    import dataspace.spark

    spark = dataspace.spark.session()     # or: dataspace.spark.register(spark), with a session of your own
    spark.readStream.format("dataspace").option("pattern", "present($who:str)").load()

To import it loads neither Spark nor Arrow.  Where a session is active already, as in a notebook or in
Spark's shell, the format is registered in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataspace.faces import face
from relay.spark.sessions import extra_named, register_in_active_session

if TYPE_CHECKING:
    from relay.spark.frames import (
        current_state as current_state,
        frame as frame,
        keep as keep,
        updates as updates,
    )
    from relay.spark.sessions import configure as configure, register as register, session as session

__all__, _fetch = face(
    __name__,
    {
        "relay.spark.sessions": "register configure session",
        "relay.spark.frames": "frame current_state updates keep",
    },
)


def __getattr__(name: str) -> object:
    with extra_named():
        return _fetch(name)


register_in_active_session()
