"""Bundles: how many packets of one peer are acted on before other tasks run?

What a peer sends is mostly little, and is done as it comes, for a few milliseconds in each pass of the event
loop.  A large frame, and the opening of a stream, which may be about all facts, are background work: they
have their turns in the lane, so that many peers that send such take one slice in each pass and not one each.

Always: the packets of a peer are acted on in the order in which they came; a packet that may wait for other
background work is acted on outside of the lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol, cast

import trio

from dataspace.kernel.actions import PUT, SEND, WITHDRAW
from dataspace.kernel.turns import KEYED, keys_in_steps
from dataspace.wire import packets as p
from index.values.values import Value
from server.lane import Work

if TYPE_CHECKING:
    from server.sessions.shared import Shared
    from server.sessions.watch import Who
    from server.streams.observations import Observations

BUNDLE: Final = 64
BUNDLE_SECONDS: Final = 0.002
"""Packets of one peer acted on before other tasks run, and the seconds that they may take."""

FRAME_SECONDS: Final = 0.001
"""Seconds after which the rest of one frame goes to the lane."""


class BundlePeer(Protocol):
    """The connection that acts on packets."""

    @property
    def shared(self) -> Shared:
        """The daemon."""

    @property
    def who(self) -> Who:
        """The client, for the log of slow turns."""

    @property
    def parted(self) -> bool:
        """True once nothing more is to be acted on."""

    @property
    def observations(self) -> Observations:
        """The streams of the connection."""

    def may_wait(self, packet: p.Packet) -> bool:
        """True for a packet that may wait for background work."""

    def commit_at_once(self, turn: p.Turn) -> bool:
        """Acts on a turn; returns False, and has done nothing, if that may take waiting."""

    async def act(self, packet: p.Packet) -> None:
        """Acts on one packet."""

    def work(self) -> Work:
        """Returns a piece of background work of this client."""

    def flush(self) -> None:
        """Writes to the sockets what connections have to send."""


async def act_on(peer: BundlePeer, packets: Iterator[p.Packet | None]) -> bool:
    """Acts on the packets of a chunk, with pauses for other tasks; returns True if there were any."""
    count, since, slow = 0, perf_counter(), peer.shared.watch.slow_turn
    until = since + BUNDLE_SECONDS
    work = peer.work()
    try:
        for packet in _prepared(packets):
            if packet is None:
                if work.is_over and perf_counter() > since + FRAME_SECONDS:
                    peer.flush()
                    await work.pass_on()
                    since = perf_counter()
                    if peer.parted:
                        break
                continue
            at_once = packet.__class__ is p.Turn and peer.commit_at_once(packet)
            if not at_once:
                if packet.__class__ is p.Open:
                    await work.enter()
                    await peer.observations.prepare_open(packet.spec, work)
                    if peer.parted:
                        break
                elif peer.may_wait(packet):
                    work.leave()
                await peer.act(packet)
            count, began, since = count + 1, since, perf_counter()
            if since - began > slow and at_once:
                said = f"a turn of {len(cast('p.Turn', packet).actions)} actions"
                peer.shared.watch.took(peer.who, "turn", said, since - began)
            if work.has_turn:
                peer.flush()
                await work.finish()
                since = perf_counter()
            elif count % BUNDLE == 0 or since > until:
                peer.flush()
                await trio.lowlevel.checkpoint()
                since = perf_counter()
                until = since + BUNDLE_SECONDS
            if peer.parted:  # before the next packet is read: after a goodbye there must be none
                break
    finally:
        work.leave()
    return count > 0


def _prepared(packets: Iterator[p.Packet | None]) -> Iterator[p.Packet | None]:
    """Yields the packets, and None between steps in which the facts of a large turn get their keys.

    A record keeps its key, which is half of the work of its turn, and that cannot be interrupted.
    """
    for packet in packets:
        if packet.__class__ is p.Turn:
            if len(packet.actions) > KEYED:
                yield from keys_in_steps(_asserted(packet.actions))
            for _, actions in packet.others:
                yield from keys_in_steps(_asserted(actions))
        yield packet


def _asserted(actions: Sequence[object]) -> list[Value]:
    """Returns the values that actions of a turn assert; actions that are none are refused later."""
    return [
        each[2] if each[0] == PUT else each[-1]
        for each in actions
        if each.__class__ is tuple and each and each[0] not in (SEND, WITHDRAW)
    ]
