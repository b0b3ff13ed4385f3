"""Requests: what an opened stream is asked to carry, checked.

Apart from those who feed streams, from a space, from the log or by the column, because all of them are asked
the same.

Always: a ``StreamRequest`` makes sense by itself; what it asks for may still not be there.
"""

from __future__ import annotations

from typing import TypeAlias

from dataspace.errors import Refused, UsageError
from dataspace.wire.observing import ObserveOptions
from index.values.values import Map

StreamRequest: TypeAlias = ObserveOptions


def read_request(spec: Map) -> StreamRequest:
    """Returns the request in an ``Open``; ``Refused`` says what is wrong with it."""
    try:
        return ObserveOptions.read(spec)
    except UsageError as error:
        raise Refused("bad-request", str(error)) from None
