"""Bundles: how many packets of one peer are acted on before other tasks run?

What a peer sends at once is mostly little, and is done at once.  The rest of a long chunk, and a large frame,
is background work like any other: it has its turns in the lane, so that many peers that send without a pause
take one slice in each pass of the event loop and not one each.

Always: the packets of a peer are acted on in the order in which they came; a packet that may wait for other
background work is acted on outside of the lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Final, Protocol

import trio

from dataspace.wire import packets as p
from server.lane import Work

BUNDLE: Final = 64
BUNDLE_SECONDS: Final = 0.001
"""Packets of one peer acted on before other tasks run, and seconds after which the rest goes to the lane."""


class BundlePeer(Protocol):
    """The connection that acts on packets."""

    @property
    def parted(self) -> bool:
        """True once nothing more is to be acted on."""

    def may_wait(self, packet: p.Packet) -> bool:
        """True for a packet that may wait for background work."""

    async def act(self, packet: p.Packet) -> None:
        """Acts on one packet."""

    def work(self) -> Work:
        """Returns a piece of background work of this client."""

    def flush(self) -> None:
        """Writes to the sockets what connections have to send."""


async def act_on(peer: BundlePeer, packets: Iterator[p.Packet | None]) -> bool:
    """Acts on the packets of a chunk, with pauses for other tasks; returns True if there were any."""
    count, until = 0, perf_counter() + BUNDLE_SECONDS
    work: Work | None = None
    try:
        for packet in packets:
            if peer.parted:
                break
            if packet is not None:
                count += 1
                if work is not None and peer.may_wait(packet):
                    work.leave()
                await peer.act(packet)
            if work is not None:
                if work.is_over:
                    peer.flush()
                    await work.pass_on()
            elif perf_counter() > until:
                peer.flush()
                await trio.lowlevel.checkpoint()
                work = peer.work()
                await work.enter()
            elif packet is not None and count % BUNDLE == 0:
                peer.flush()
                await trio.lowlevel.checkpoint()
    finally:
        if work is not None:
            work.leave()
    return count > 0
