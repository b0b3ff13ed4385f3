"""Reopening: how an observation goes on after the last epoch that came, or begins anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dataspace.errors import DataspaceError
from dataspace.wire.observing import ObserveOptions

RESTARTS: Final = frozenset(["epoch-gone", "epoch-lost", "epoch-ahead"])
"""Error codes of an opening that mean: the stream cannot start at that epoch, but the state is available."""


def follows_state(options: ObserveOptions, *, restated: bool) -> bool:
    """True if it begins with the state, or has begun with it anew, and does not read the past."""
    past = options.after is not None or (options.as_of is not None and not restated)
    return (options.snapshot or restated) and not past and options.upto is None and not options.durable


def going_on(options: ObserveOptions, newest: int | None, *, net: bool, restated: bool) -> ObserveOptions:
    """Returns how to open it after ``newest``, the last epoch known here, or anew where there is none."""
    if newest is not None:
        is_first = newest == options.after
        net = net or (options.net and is_first)
        identity = options.identity if is_first else ""  # later ones have come over this connection
        return replace(options, snapshot=True, after=newest, as_of=None, net=net, identity=identity)
    snapshot = options.snapshot or restated
    as_of, identity = (None, "") if restated else (options.as_of, options.identity)
    return replace(options, snapshot=snapshot, after=None, as_of=as_of, net=False, identity=identity)


def copied(error: DataspaceError) -> DataspaceError:
    """Returns a copy of the error for one stream: other streams may raise the same one."""
    return type(error)(*error.args)
