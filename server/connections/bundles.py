"""Bundles: how many packets of one peer are acted on before other tasks run?

What a peer sends is mostly little, and is done as it comes, for a few milliseconds in each pass of the event
loop.  A large frame, and the opening of a stream, which may be about all facts, are background work: they
have their turns in the lane, so that many peers that send such take one slice in each pass and not one each.

Always: the packets of a peer are acted on in the order in which they came; a packet that may wait for other
background work is acted on outside of the lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Final

import trio

from dataspace.kernel.actions import PUT, SEND, WITHDRAW
from dataspace.kernel.turns import KEYED, keys_in_steps
from dataspace.wire import packets as p
from index.values.values import Value
from server.lane import Work

if TYPE_CHECKING:
    from server.connections.dispatch import ClientPeer

BUNDLE: Final = 64
BUNDLE_SECONDS: Final = 0.002
"""Packets of one peer acted on before other tasks run, and the seconds that they may take."""

FRAME_SECONDS: Final = 0.001
"""Seconds after which the rest of one frame goes to the lane."""


async def act_on(peer: ClientPeer, packets: Iterator[p.Packet | None]) -> bool:
    """Acts on the packets of a chunk, with pauses for other tasks; returns True if there were any."""
    count, since, slow = 0, perf_counter(), peer.shared.watch.slow_turn
    until = since + BUNDLE_SECONDS
    work, is_traced = peer.work(), peer.shared.recorder is not None
    arrived = time_ns() if is_traced else 0
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
            if packet.__class__ is p.Turn and is_traced:
                at_once = await _act_traced(peer, packet, work, arrived)
            else:
                at_once = peer.act_at_once(packet)
                if not at_once:
                    await _act(peer, packet, work)
            count, began, since = count + 1, since, perf_counter()
            if since - began > slow and at_once:
                note_slow(peer, packet, since - began)
            if work.has_turn:
                peer.flush()
                await work.finish()
                since = perf_counter()
            elif count % BUNDLE == 0 or since > until:
                peer.flush()
                await trio.lowlevel.checkpoint()
                since = perf_counter()
                until = since + BUNDLE_SECONDS
            if peer.parted:  # before the next is read: after a goodbye none is
                break
    finally:
        work.leave()
    return count > 0


def note_slow(peer: ClientPeer, packet: p.Packet, seconds: float) -> None:
    """Reports a packet that was acted on in one slow step, if it is a turn."""
    if packet.__class__ is p.Turn:
        peer.shared.watch.took(peer.who, "turn", f"a turn of {len(packet.actions)} actions", seconds)


async def _act(peer: ClientPeer, packet: p.Packet, work: Work) -> None:
    """Acts on a packet that may take waiting."""
    if packet.__class__ is p.Open:
        await work.enter()
        await peer.prepare_open(packet.spec, work)
        if peer.parted:
            return
    elif peer.may_wait(packet):
        work.leave()
        await peer.hosted.rule_turns.wait_settled()
    await peer.act(packet)


async def _act_traced(peer: ClientPeer, turn: p.Turn, work: Work, arrived: int) -> bool:
    """Acts on a turn with its trace, if it is to be traced; returns True if that took no waiting."""
    recorder, is_new = peer.shared.recorder, turn.sequence > peer.own.client.sequence
    assert recorder is not None  # as the caller has seen
    actions = len(turn.actions) + sum([len(each) for _, each in turn.others])
    with recorder.acting("turn", peer, actions, turn.traceparent, arrived) as trace:
        at_once = peer.commit_at_once(turn)
        if not at_once:
            await _act(peer, turn, work)
    if trace is not None and not trace.epoch:
        recorder.refused(trace, trace.code or ("expectation" if is_new else ""))
    return at_once


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
