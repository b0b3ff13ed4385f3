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

from dataspace.kernel.actions import SEND
from dataspace.wire import packets as p
from index.values.values import Record, Value
from server.lane import Work

BUNDLE: Final = 64
BUNDLE_SECONDS: Final = 0.001
"""Packets of one peer acted on before other tasks run, and seconds after which the rest goes to the lane."""


KEYED: Final = 256
"""Actions of a turn whose values get their keys in one step, in less than a millisecond."""


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
        for packet in _prepared(packets):
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


def _prepared(packets: Iterator[p.Packet | None]) -> Iterator[p.Packet | None]:
    """Yields the packets, and None between steps in which the facts of a large turn get their keys.

    A record keeps its key, which is half of the work of its turn, and that cannot be interrupted.
    """
    for packet in packets:
        if packet.__class__ is p.Turn and len(packet.actions) > KEYED:
            for start in range(0, len(packet.actions), KEYED):
                for action in packet.actions[start : start + KEYED]:
                    if action.__class__ is tuple and action and action[0] != SEND:
                        _make_key(action[-1])
                yield None
        yield packet


def _make_key(value: Value) -> None:
    if value.__class__ is Record:
        _ = value.text
