"""Erasures: rows that went from an archive while a query read it.

A fact goes with all of its changes, so a query that begins later reads whole lives of facts.  A query
that began before may have read a fact whose removal will not come, and a batch that it runs again may have
fewer rows.

Always: a stream fails where changes that it reads were erased since it began, or goes on because
``failOnErasure`` says so.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from dataspace.client.bulk.states import erased_at
from dataspace.errors import DataspaceError
from relay.spark.common.connections import DaemonPeer, asked
from relay.spark.source.offsets import Span

if TYPE_CHECKING:
    from relay.spark.common.options import StreamOptions

log: Final = logging.getLogger("dataspace.spark")


class RowsErased(DataspaceError):
    """Rows of epochs that a query was to read were erased since it began."""


def check_erased(peer: DaemonPeer, options: StreamOptions, span: Span, space: str, known: int) -> None:
    """Raises ``RowsErased`` where changes of a span were erased later than ``known``, or logs it.

    ``space`` is the identity of the log, ``known`` in microseconds since 1970.
    """
    erased = _erased_in(peer, options.connect_timeout, span, space)
    if erased <= known:
        return
    when = f"{datetime.fromtimestamp(erased / 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    reason = (
        f"rows of epochs {span.after + 1} to {span.upto} were erased at {when}, since the query began: a "
        f"batch that is run again has others, and removals of rows that were read may be missing"
    )
    if options.fail_on_erasure:
        raise RowsErased(f"{reason} (failOnErasure=false goes on with what is left)")
    log.warning("%s; going on with what is left, as failOnErasure=false asks", reason)


def _erased_in(peer: DaemonPeer, bound: float, span: Span, space: str) -> int:
    """Returns when rows of a span were erased last, from its archive or the daemon's; 0 for never."""
    found = 0
    if peer.archive:
        from relay.spark.cold import archives  # loaded where there is an archive

        cold = archives.archive_of(peer, bound, space)
        found = 0 if cold is None else cold.archive.erased_at(span.after, span.upto)
    if peer.url:
        found = max(found, asked(peer, bound, lambda link: erased_at(link, span.after, span.upto)))
    return found
