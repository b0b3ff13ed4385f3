"""A notice that an operator puts up: a fact of the space ``system``, which ends with the daemon."""

from __future__ import annotations

from typing import Final

import trio

from dataspace.errors import Refused
from dataspace.wire.verbs import Arguments
from index.values.values import Record, Value
from server.features import Feature, Measured
from server.metrics import Metric
from server.parts import PartKey
from server.sessions.peer import Peer
from server.system import SystemSpace


class Notices:
    """The notice of one daemon, and how often one was put up."""

    def __init__(self, system: SystemSpace) -> None:
        self.count = 0
        self._system, self._stated = system, dict[Record, int]()

    def put_up(self, text: str) -> None:
        """Replaces the notice; without a text there is none."""
        self.count += text != ""
        self._system.replace(self._stated, {Record("notice", text)} if text else set())


NOTICES: Final = PartKey[Notices]("notices")


async def _notice(peer: Peer, arguments: Arguments) -> Value:
    await trio.lowlevel.checkpoint()
    peer.permit.check_administer("put up a notice")
    size, most = len(arguments["text"]), peer.shared.limits.notice_length  # type: ignore[attr-defined]  # of LINES
    if size > most:
        raise Refused("limit", f"a notice of {size} characters, the limit is limits.notice_length={most}")
    peer.shared.parts[NOTICES].put_up(arguments["text"])
    return None


FEATURE: Final = Feature(
    name="notices",
    make=lambda daemon: daemon.parts.add(NOTICES, Notices(daemon.system)),
    verbs=lambda _: {"notice": _notice},
    routes="notices.routes",
    metrics=Measured(
        lambda daemon: daemon.parts[NOTICES],
        (Metric("dataspace_notices", "counter", "Notices that were put up.", lambda of: of.count),),
    ),
)
