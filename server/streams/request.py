"""Stream requests: the checked options of an ``Open``.

They are apart from the feeders of streams, because all of these take the same options.

Always: a ``StreamRequest`` is consistent in itself; what it requests may still not be available.
"""

from __future__ import annotations

from typing import TypeAlias

from dataspace.errors import Refused, UsageError
from dataspace.wire.observing import ObserveOptions
from index.values.values import Map

StreamRequest: TypeAlias = ObserveOptions


def read_request(spec: Map) -> StreamRequest:
    """Returns the request in an ``Open``; raises ``Refused`` with what is wrong with it."""
    try:
        return ObserveOptions.read(spec)
    except UsageError as error:
        raise Refused("bad-request", str(error)) from None
