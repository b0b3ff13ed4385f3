"""A connection: turns the bytes of one peer into turns, streams and answers.

Two tasks serve it.  The first reads, cuts packets and acts on each at once, so that the turns of one client
are committed in the order in which they were sent.  The second belongs to the ``SendQueue``.  Everything the
peer owns is claimed under the owner name of its session, and is retracted at the end.

Always: malformed input ends this connection with a ``Bye`` that gives the reason, and affects no other; the
reader stops while the peer does not read its answers, or while the disk is behind.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import DataspaceError, ProtocolError, Refused, UsageError
from dataspace.faults import reach
from dataspace.kernel.actions import are_by_handle
from dataspace.wire import packets as p
from dataspace.wire.features import SYSTEM
from dataspace.wire.forms import Form
from dataspace.wire.session import State
from index.values.values import Map
from relay.delivery.outbox import OutStream
from relay.store.errors import LogFailed
from server.conditions.turns import commit_at_once, commit_conditional
from server.connections.bundles import BundlePeer, act_on
from server.connections.greeting import admit, heartbeat, welcome
from server.connections.lingering import goodbye_of, linger
from server.connections.old_turns import OldTurns
from server.publication.verbs import Offers
from server.sessions.peer import Peer
from server.sessions.requests import answer
from server.spaces.sessions import SessionState
from server.streams.observations import Observations
from server.streams.replay import ReplaySlots
from server.topics.following import TopicConnection, TopicConnections

if TYPE_CHECKING:
    from dataspace.transport.sockets import Link
    from server.sessions.requests import Verb
    from server.sessions.shared import Shared

logger = logging.getLogger("dataspace")

CLOCK_SECONDS: Final = 10.0
"""Seconds between two looks at the clock, which may be set, for the end of a token."""

LOSSES: Final = frozenset(["timeout", "stalled"])
"""Codes of goodbyes after which the peer may connect again and resume its session."""


class Connection(Peer):
    """A peer over a link, whose requests are among ``verbs``."""

    def __init__(
        self,
        shared: Shared,
        link: Link,
        number: int,
        verbs: Mapping[str, Verb],
        topics: TopicConnections,
        *,
        trusted: bool = False,
        form: Form | None = None,
    ) -> None:
        super().__init__(shared, link, number, trusted=trusted, form=form)
        limits = self.limits
        self._verbs = verbs
        self._topics = topics
        self.observations: Final = Observations(
            self,
            system=shared.system,
            slots=ReplaySlots(limits.replays, shared.replays),
            delivery=shared.delivery,
            took=self._replay_took,
        )
        self.following: Final = topics.connect(self)
        self.feeders = (self.observations, self.following)
        self.offers: Final = Offers(self, most=limits.requests, size=limits.offered_bytes)
        self._old_turns: Final = OldTurns(self)
        self._left = self._at_end = self._parted = False
        self.acting: BundlePeer = self  # on packets: what traces turns stands before it

    # -- life -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serves the peer until it disconnects, breaks the protocol, or is cancelled."""
        reason = "the peer closed the connection"
        try:
            with self._scope:
                async with trio.open_nursery() as self._nursery:
                    self.start(self.sending.run)
                    with self._reading:
                        try:
                            await self._read()
                            self.lost = self.session.state is not State.ENDED
                        except ProtocolError as error:
                            reason = str(error)
                            self.lost = error.code in LOSSES
                            self.part(error.code, error.text)
                        except DataspaceError as error:  # such as a disk that has failed
                            self.lost, reason = isinstance(error, LogFailed), str(error)
                            self.part(goodbye_of(error), reason)
                        except Exception:  # noqa: BLE001  # a fence around a session: a defect in it ends nothing else
                            self.defect()
                    await self._end_session(reason)
                    if self._parted:
                        self.sending.part("", "")  # only now: the peer's facts are gone when it is answered
                    self.flush()
                    await linger(self.link, self.sending, at_end=self._at_end, parted=self._parted)
                    self._nursery.cancel_scope.cancel()
            if self._scope.cancelled_caught:
                reason = "the daemon ended it"
                if not self._left:
                    await self._end_session(reason)
        finally:
            if not self._left:
                self._leave_session(reason)
                await trio.lowlevel.cancel_shielded_checkpoint()  # as above
            self.home.end_due()  # again: it may have been cancelled while it waited for the others
            self._leave(reason)

    async def _read(self) -> None:
        patience = Patience(self)
        while self.session.state is not State.ENDED:
            chunk = await patience.receive()
            if not chunk:
                self._at_end = True
                return
            self.received += len(chunk)
            some = await act_on(self.acting, self.session.steps(chunk))
            self.flush()
            if self.link.pending:
                self.sending.stir()
            patience.extend(some)
            await self._wait_room()
            self.sending.beat.heard(trio.current_time())  # this process may not have run for a while

    @property
    def parted(self) -> bool:
        """True once one of the two ends has said goodbye."""
        return self._parted or self.session.parted

    def may_wait(self, packet: p.Packet) -> bool:
        """True for a turn that was sent before, whose answer may be in the log, and for what takes long."""
        if packet.__class__ is p.Turn:
            return _is_conditional(packet) or packet.sequence <= self.own.client.sequence
        return packet.__class__ is p.Produce

    @property
    def is_busy(self) -> bool:
        """True while a request has no answer, or an offered stream is not at its end."""
        return bool(self.asked or len(self.offers))

    def _replay_took(self, what: str, seconds: float) -> None:
        self.shared.watch.took(self.who, "replay", what, seconds)

    async def _wait_room(self) -> None:
        """Waits while the disk is behind, or while the peer does not read what is sent to it."""
        await self.home.commits.wait_room()
        limits, sending = self.limits, self.sending
        if sending.unheard > limits.unsent_bytes:
            with trio.move_on_after(limits.stalled_seconds):
                while sending.unheard > limits.unsent_bytes:
                    await sending.wait_drained()
                return
            raise ProtocolError("stalled", f"{sending.unheard} bytes of answers were not read")

    def _leave(self, reason: str) -> None:
        self.link.close()
        self.places.leave(len(self.streams))
        self.streams.clear()
        self._topics.disconnect(self)
        self.shared.left(self)
        self.flush()
        logger.info(
            "session %d ended: %s (%d turns, %d bytes in, %d out)",
            self.number,
            reason,
            self.turns,
            self.received,
            self.sending.sent,
        )
        self._ended.set()

    async def _end_session(self, reason: str) -> None:
        """Ends the session, or keeps it for its client; returns once what it owned is retracted."""
        await self.observations.close_feeds()
        self._leave_session(reason)
        await trio.lowlevel.checkpoint()  # others that end in this moment share its turn
        await self.home.end_in_turns()

    def _leave_session(self, reason: str) -> None:
        """Feeds no stream any more; the session ends with the next ``end_due``, or waits for its client."""
        self._left = self.gone = True
        for each in self.feeders:
            each.end(reason)
        if self.state is not None:
            self.home.sessions.leave(self.state, self)

    # -- what the peer sends -------------------------------------------------------------------------

    async def act(self, packet: p.Packet) -> None:
        if self.places.account.is_paced:
            await self.places.pace(packet)
        match packet:
            case p.Turn(at) if at <= self.own.client.sequence:
                await self._old_turns.answer(at)
            case p.Turn():
                if _is_conditional(packet):
                    await commit_conditional(self, packet)
                else:
                    self._turn(packet, self.own)
            case p.Ask(stream, items, size):
                opened = self.streams.get(stream)
                if opened is not None:
                    opened.ask(items, size)
                    self.wake(opened)
            case p.Peek(stream, items):
                opened = self.streams.get(stream)
                if opened is not None:
                    opened.peeked = items
                    self.wake(opened)
            case p.Open():
                self._open(packet)
            case p.Abort(stream, _reason, wants_answer):
                self._abort(stream, wants_answer=wants_answer)
            case p.Values(stream) if stream in self.streams:
                raise ProtocolError("unexpected", f"values for stream {stream}, which the daemon feeds")
            case p.Values():
                self.offers.arrive(packet, self.session.size)
            case p.Offer():
                self.offers.open(packet)
            case p.Done(stream):
                self.offers.finish(stream)
            case p.Error(stream):
                self.offers.drop(stream)
            case p.Request():
                await answer(self, packet, self._verbs, self.limits.requests)
            case p.Produce():
                await self._produce(packet)
            case p.Ping(number):
                self.say(p.Pong(number))
            case p.Hello():
                await self._greet(packet)
            case p.Bye():
                self._parted = True  # answered at the end
            case _:
                pass  # a pong needs no answer

    async def _greet(self, hello: p.Hello) -> None:
        """Answers a hello with a welcome; raises ``ProtocolError`` for a peer that is not admitted."""
        try:
            admitted = admit(self.shared, hello, self.principal, trusted=self.trusted)
        except ProtocolError as error:
            self.shared.watch.login_refused(self.who, error.code, error.text)
            await self.places.slow_down(self.link.peer, error)
            raise
        wanted, self.bearer, self.home = admitted.wanted, admitted.bearer, admitted.home
        self.permit = self.bearer.permit
        if self.permit.until is not None:
            self.start(self._expel, self.permit.until)
        self.name = hello.name
        self.shared.greeted(self)
        self.places.enter(self.principal, self.number, self.home.name, self.name, self.link)
        self.state, resumed = self.home.sessions.greet(self, admitted.client, wanted)
        if resumed:
            self.session.resume()
        logger.info(
            "session %d: %r (%r) from %s, %s%s",  # quoted, so that no name writes lines of its own
            self.state.number,
            self.name,
            hello.client,
            self.link.peer,
            self.principal,
            f" came back as connection {self.number}" if resumed else "",
        )
        interval = heartbeat(self.limits, wanted)
        self.sending.beat_at(interval)
        self.session.allow_frames(self.limits.frame_bytes)
        self.say(welcome(self.home, self.state, interval, wanted, self._verbs, resumed=resumed))

    async def _expel(self, until: datetime) -> None:
        """Ends the connection when its token expires."""
        while (left := (until - datetime.now(UTC)).total_seconds()) > 0:  # noqa: ASYNC110  # no event tells the time
            await trio.sleep(min(left, CLOCK_SECONDS))  # the clock may be set meanwhile
        self.dismiss("unauthorized", f"the token expired at {until:%Y-%m-%dT%H:%M:%SZ}")

    def commit_at_once(self, turn: p.Turn) -> bool:
        """Acts on a turn; returns False, and has done nothing, if that may take waiting."""
        own = self.own
        if turn.sequence <= own.client.sequence or self.places.account.is_paced:
            return False
        if _is_conditional(turn):
            return commit_at_once(self, turn)
        self._turn(turn, own)
        return True

    def _turn(self, turn: p.Turn, own: SessionState) -> None:
        sequence, space, name, actions = turn[:4]
        home = self.home
        try:
            owner = self.owner_of(name) if name else own.owner
            home.check_space(space)
            if not self.permit.open:
                self.permit.check_actions(actions)
            account = self.places.account
            home.commit(
                owner, actions, client=own.client, sequence=sequence, account=account, on_durable=self.accept
            )
        except Refused as refusal:
            self.say(p.Refusal(sequence, refusal.code, refusal.text[:4000]))
            return
        reach("turn-committed")
        self.turns += 1

    # -- streams --------------------------------------------------------------------------------------

    def _open(self, packet: p.Open) -> None:
        stream = OutStream(packet.stream, packet.items, packet.bytes)
        try:
            self.places.take_stream(self.streams)
            self.streams[packet.stream] = stream
            self._feeder(packet.spec).open(stream, packet.spec)
        except (Refused, UsageError) as error:
            self.fail(stream, getattr(error, "code", "bad-request"), getattr(error, "text", str(error)))

    def _feeder(self, spec: Map) -> Observations | TopicConnection:
        """Returns what feeds a stream; raises ``Refused`` if the peer may not open it."""
        if spec.get("kind") == "topic":
            self.permit.check_topic("subscribe", str(spec.get("topic")))
            return self.following
        if spec.get("space") == SYSTEM:
            self.permit.check_inspect(f"space {SYSTEM!r}")
        elif not self.permit.open:
            self.permit.check_observe(spec.get("pattern"))
        return self.observations

    def _abort(self, number: int, *, wants_answer: bool) -> None:
        stream = self.streams.get(number)
        if stream is not None:
            stream.ended = True
            self.close(stream)
        else:
            self.observations.forget(number)
        if wants_answer:
            self.say(p.Done(number))

    async def _produce(self, packet: p.Produce) -> None:
        try:
            await self.following.produce(packet, self.session.size)
        except Refused as refusal:
            self.say(p.Denied(packet.number, refusal.code, refusal.text[:4000]))
        except UsageError as error:
            self.say(p.Denied(packet.number, "bad-request", str(error)[:4000]))


class Patience:
    """The deadlines of one peer: for its hello, for the rest of a frame, for any sign of life.

    A deadline is absolute, so a peer that sends a byte now and then does not extend it.  A ``trusted`` peer
    may take as long as it likes for its hello.
    """

    __slots__ = ("_deadline", "_peer")

    def __init__(self, peer: Peer) -> None:
        self._peer: Final = peer
        self._deadline = math.inf if peer.trusted else trio.current_time() + peer.limits.hello_seconds

    async def receive(self) -> bytes:
        """Returns bytes, or none at the end; raises ``ProtocolError`` if the peer was silent for too long."""
        chunk = None
        with trio.move_on_at(min(self._deadline, self._peer.sending.beat.lost)):
            chunk = await self._peer.link.receive()
        if chunk is None:
            chunk = self._peer.link.receive_nowait()  # the daemon itself may have been late
        if chunk is None:
            raise self._late()
        return chunk

    def extend(self, some: bool) -> None:
        """Notes what came: the frame that has begun must be complete in time.

        ``some`` is true if other frames were finished just now, so that this one cannot be older.
        """
        if self._peer.session.state is State.FRESH:
            return
        if not self._peer.session.held:
            self._deadline = math.inf
        elif some or self._deadline == math.inf:
            self._deadline = trio.current_time() + self._peer.limits.frame_seconds

    def _late(self) -> ProtocolError:
        if self._peer.session.state is State.FRESH:
            return ProtocolError("timeout", f"no hello within {self._peer.limits.hello_seconds} s")
        beat = self._peer.sending.beat
        if beat.lost <= trio.current_time():
            return ProtocolError("timeout", f"no data for {2 * beat.interval:g} s")
        return ProtocolError("timeout", f"a frame took longer than {self._peer.limits.frame_seconds} s")


def _is_conditional(turn: p.Turn) -> bool:
    """True for a turn that ``server.conditions`` decides; O(actions)."""
    return bool(turn.expected or turn.others) or not are_by_handle(turn.actions)
