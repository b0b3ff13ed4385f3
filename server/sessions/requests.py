"""Requests: each is a verb with a map of arguments, and gets one answer.

The verbs come from the rooms that answer them, joined by the daemon; WIRE.md lists what each takes and
returns.  Turns that were sent again are answered here as well, off the path of later packets.

Always: each request gets exactly one answer, or a denial that has the reason and means that nothing happened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Final, TypeAlias

import trio

from dataspace.errors import (
    Closed,
    DataspaceError,
    DeliveryLost,
    ExpectationFailed,
    ProtocolError,
    Refused,
    UsageError,
)
from dataspace.wire import packets as p
from dataspace.wire.verbs import VERBS, Arguments
from index.values.values import Map, Value
from relay.store.errors import LogDamaged, LogFailed
from server.owners.turn_numbers import is_applied, refusal
from server.sessions.peer import Peer
from server.sessions.state import DaemonState
from server.sessions.watch import Watch

Verb: TypeAlias = "Callable[[Peer, Arguments], Awaitable[Value | Unwritten]]"
"""What carries out a request, whose arguments were read by the table of verbs."""

Unread: TypeAlias = "Callable[[Peer, Map], Awaitable[Value | Unwritten]]"
"""The same, which reads them itself."""

AT_ONCE: Final = frozenset(["lease", "renew", "release"])
"""Verbs on which later packets of the connection rely; to wait for the disk they return ``Unwritten``."""

OF_FACTS: Final = frozenset(["index", "owners", "rules", "withdraw"])
"""Verbs whose answers tell about the facts in memory."""

MOST_OLD_TURNS: Final = 8192
"""Old turns of one client that wait for an answer."""


async def answer(peer: Peer, request: p.Request, verbs: Mapping[str, Unread], most: int) -> None:
    """Carries out a request: at once if later packets may depend on it, else in a task of its own.

    Denied if there is no such verb, or if ``most`` requests of the connection have no answer yet.
    """
    verb = verbs.get(request.verb)
    if verb is None:
        text = f"no verb {request.verb!r}, known are {', '.join(sorted(verbs))}"
        peer.say(p.Denied(request.number, "unknown-verb", text[:4000]))
    elif peer.asked >= most:
        text = f"{peer.asked} requests at once, the limit is limits.requests={most}"
        peer.say(p.Denied(request.number, "limit", text))
    elif request.verb in AT_ONCE:
        peer.asked += 1
        await _carry_out(peer, request, verb)
    else:
        peer.asked += 1
        peer.start(_carry_out, peer, request, verb)


@dataclass(frozen=True, slots=True)
class Unwritten:
    """What a verb of ``AT_ONCE`` returns whose effect is not on disk yet: ``wait`` returns when it is."""

    wait: Callable[[], Awaitable[None]]

    async def written(self, _peer: object, _arguments: Map) -> Value:
        """Returns null, once the effect is on disk."""
        await self.wait()
        return None


async def _carry_out(peer: Peer, request: p.Request, verb: Unread) -> None:
    try:
        value = await verb(peer, request.arguments)
        if isinstance(value, Unwritten):  # later packets do not wait for the disk
            peer.asked += 1
            peer.start(_carry_out, peer, request, value.written)
            return
    except (ExpectationFailed, DeliveryLost) as refusal:
        peer.say(p.Denied(request.number, refusal.code, refusal.text[:4000], refusal.found))
    except (Refused, ProtocolError) as refusal:
        peer.say(p.Denied(request.number, refusal.code, refusal.text[:4000], url=refusal.url))
    except (LogFailed, LogDamaged) as failure:
        peer.hosted.check_not_of_log(failure)
        peer.say(p.Denied(request.number, failure.code, str(failure)[:4000]))
    except Closed as closed:  # while it waited for the disk, the daemon has ceased to lead
        peer.say(p.Denied(request.number, "closing", str(closed)[:4000]))
    except UsageError as error:
        peer.say(p.Denied(request.number, "bad-request", str(error)[:4000]))
    else:
        await peer.sending.answer(request.number, value, peer.work(begun=True))
    finally:
        peer.asked -= 1
    peer.flush()


def timed(watch: Watch, name: str, verb: Verb) -> Unread:
    """Returns a verb whose requests are logged if they take too long; a request that asked to wait is not.

    Arguments are read by the table of verbs, or refused; an act of an administrator is noted.
    """
    read = VERBS[name].read

    async def timed(peer: Peer, stated: Map) -> Value | Unwritten:
        arguments = read(stated)
        began = perf_counter()
        try:
            try:
                answer = await verb(peer, arguments)
            except ExpectationFailed:
                await peer.hosted.visibility.wait()
                raise
            if name in OF_FACTS:
                await peer.hosted.visibility.wait()
            if (act := _act_of(name, arguments)) is not None:
                watch.acted(*act, peer.who)
            return answer
        finally:
            if not arguments.get("wait"):
                watch.took(peer.who, "request", name, perf_counter() - began)

    return timed


def _act_of(verb: str, arguments: Arguments) -> tuple[str, str] | None:
    """Returns what a request does that only administrators do, and to what."""
    if verb == "rules" and arguments["ask"] == "resume":
        return "rule-resumed", f"rule {arguments['about']!r:.200}"
    if verb == "acknowledge" and arguments["forget"]:
        return "reader-forgotten", f"reader {arguments['reader']!r:.200}"
    return ("topic-ended", f"topic {arguments['topic']!r:.200}") if verb == "end-topic" else None


# -- rights beside a token's ------------------------------------------------------------------------

LOCAL: Final = ("127.", "::1", "unix")
"""How the addresses of clients on this machine begin."""


def check_own_machine(daemon: DaemonState, peer: Peer, what: str) -> None:
    """Raises ``Refused`` for a client on another machine, if the daemon has no tokens."""
    if not len(daemon.keys) and not peer.trusted and not peer.address.startswith(LOCAL):
        raise Refused(
            "not-allowed",
            f"this daemon has no tokens, so only a client on its own machine may {what}; use a loopback "
            "address or a Unix socket, or configure tokens",
        )


# -- turns that were sent again --------------------------------------------------------------------


class OldTurns:
    """Answers turns of one client that came before, off the path of its packets.

    A client that lost its connection sends the turns without an answer again.  The latest ones are
    remembered; for older ones the log must be read, which may take long where it is large.  One task of the
    peer does this for all waiting turns together, while the session goes on.

    An answer says applied (with its epoch, which is on disk), not applied, or not known any more; what waits
    is bounded, and a client that sends more waits.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._wanted: set[int] = set()
        self._running = False
        self._has_room = trio.Event()

    async def answer(self, sequence: int) -> None:
        """Answers a turn that is not higher than the highest applied, at once or later.

        Waits only while ``MOST_OLD_TURNS`` others wait.
        """
        peer = self._peer
        epoch = peer.own.client.epoch_of(sequence)
        if epoch is not None and epoch < peer.hosted.commits.durable:  # what had no effect may wait under it
            self._say(sequence, epoch)
            return
        while len(self._wanted) >= MOST_OLD_TURNS:
            self._has_room = trio.Event()
            await self._has_room.wait()
        self._wanted.add(sequence)
        if not self._running:
            self._running = True
            peer.start(self._run)

    async def _run(self) -> None:
        peer = self._peer
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, set()
                self._has_room.set()
                found = await peer.hosted.find_turns(peer.own.client, wanted)
                for sequence in sorted(wanted):
                    epoch = found.get(sequence)
                    await peer.hosted.commits.wait_durable(epoch or 0)
                    self._say(sequence, epoch)
                peer.hosted.flush()
        except DataspaceError as error:  # such as a disk that has failed
            peer.dismiss_for(error)
        finally:
            self._running = False

    def _say(self, sequence: int, epoch: int | None) -> None:
        if is_applied(epoch):
            self._peer.say(p.Accepted(sequence, (epoch,)))
        else:
            refused = refusal(sequence, epoch)
            self._peer.say(p.Refusal(sequence, refused.code, refused.text, url=refused.url))
