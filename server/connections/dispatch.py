"""Dispatch: what the packets of a client do, whatever door they come through.

Each packet is acted on at once, so that the turns of one client are committed in the order in which they were
sent.  Everything that the client owns is claimed under the owner name of its session, and is retracted at the
end.

Always: a client that is not admitted gets the reason before anything else of its hello is read, and nothing
is granted that was not requested; what a client does wrong ends its own session, with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

import trio

from dataspace.errors import Closed, DataspaceError, ProtocolError, Refused, UsageError
from dataspace.faults import reach
from dataspace.kernel.actions import are_by_handle
from dataspace.wire import packets as p
from dataspace.wire.features import EMPTY, MAIN, Granted, Wanted
from relay.delivery.outbox import OutStream
from relay.store.errors import LogFailed
from server.config.rights import OPEN
from server.connections.admission import admit, heartbeat, spoken
from server.parts import PartKey
from server.sessions.peer import PEERS, Door, Peer
from server.sessions.requests import OldTurns, answer
from server.spaces.measures import limits_of
from server.spaces.sessions import SessionState
from server.turns.conditions import (
    commit_at_once,
    commit_conditional,
    commit_reporting,
    is_conditional,
    refused,
)

if TYPE_CHECKING:
    from index.values.values import Map
    from server.config.model import Limits
    from server.lane import Work
    from server.sessions.feeding import Feeder
    from server.sessions.peer import FeederKey
    from server.sessions.requests import Unread
    from server.sessions.state import DaemonState

logger = logging.getLogger("dataspace")

CLOCK_SECONDS: Final = 10.0
"""Seconds between two looks at the clock, which may be set, for the end of a token."""

OBSERVE: Final = "observe"

LOSSES: Final = frozenset(["timeout", "stalled"])
"""Codes of goodbyes after which the peer may connect again and resume its session."""


class ClientDoor(Door, Protocol):
    """A door whose client is served."""

    def begin(self, peer: ClientPeer) -> None:
        """Begins to read, in the task of the peer or before there is one."""

    async def read(self, peer: ClientPeer) -> bool | None:
        """Acts on what the client sends until it has gone; returns False if it was lost.

        Returns None once it reads on without a task, until it calls ``serve`` of the peer.  Raises
        ``ProtocolError`` for malformed input.
        """

    async def linger(self, peer: ClientPeer) -> None:
        """Returns when the last packets have left, or cannot."""

    def close(self) -> None:
        """Closes the door at once."""


class Served:
    """What a daemon serves to its clients, by the names on the wire."""

    def __init__(
        self,
        verbs: Mapping[str, Unread],
        streams: Mapping[str, FeederKey[Feeder]],
        packets: Mapping[type[p.Packet], FeederKey[Feeder]],
    ) -> None:
        self.verbs = verbs
        self.streams = streams
        """What feeds streams of each kind; ``OBSERVE`` is that of a stream that names none."""
        self.packets = packets
        """What takes further packets."""


SERVED: Final = PartKey[Served]("served")
"""What all peers of a daemon are served."""


class ClientPeer(Peer):
    """A peer whose packets are acted on."""

    def __init__(
        self,
        shared: DaemonState,
        door: ClientDoor,
        number: int,
        *,
        trusted: bool = False,
        hosted_limits: Limits | None = None,
    ) -> None:
        """``hosted_limits`` are the limits of a process whose actor the daemon hosts; None for a client."""
        super().__init__(shared, door, number, trusted=trusted)
        self.hosted_limits: Final = hosted_limits
        self._door = door
        self._served: Final = shared.parts[SERVED]
        self._old_turns: OldTurns | None = None
        self._left = False

    # -- life -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        scope, reading = self.tasks.serving, self.tasks.reading
        assert scope is not None and reading is not None  # as ``serve`` has made them
        reason, rests = "the peer closed the connection", False
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    self.tasks.begin(nursery)
                    with reading:
                        try:
                            read = await self._door.read(self)
                            rests = read is None and not (reading.cancel_called or scope.cancel_called)
                            self.lost = read is False
                        except ProtocolError as error:
                            reason = str(error)
                            self.lost = error.code in LOSSES
                            self.part(error.code, error.text, error.url)
                        except DataspaceError as error:  # such as a disk that has failed
                            reason = str(error)
                            self.dismiss_for(error)
                        except Exception:  # noqa: BLE001  # a fence around a session: a defect in it ends nothing else
                            self.defect()
                    if rests:
                        self.tasks.rest()  # from here on there may be another task
                        return
                    await self._end_session(reason)
                    if self.has_parted:
                        self.sending.part("", "")  # only now: the peer's facts are gone when it is answered
                    self.flush()
                    await self._door.linger(self)
                    nursery.cancel_scope.cancel()
            if scope.cancelled_caught:
                reason = "the daemon ended it"
                if not self._left:
                    await self._end_session(reason)
        finally:
            if not rests:
                if not self._left:
                    self.lost = self.lost or not self.parted
                    self._leave_session(reason)
                    await trio.lowlevel.cancel_shielded_checkpoint()  # as above
                self.hosted.end_due()  # again: it may have been cancelled while it waited for the others
                self.leave(reason)

    def end(self) -> None:
        if self.tasks.serving is None:
            self.tasks.expect()
            self.lost = not self.parted
            self._leave_session("the daemon ended it")
            self.hosted.end_due()
            self.leave("the daemon ended it")

    @property
    def parted(self) -> bool:
        """True once one of the two ends has said goodbye."""
        return self.has_parted or self.sending.parted

    def may_wait(self, packet: p.Packet) -> bool:
        """True for a turn that was sent before, whose answer may be in the log, and for what takes long."""
        if packet.__class__ is p.Turn:
            is_old = packet.sequence <= self.own.client.sequence
            return is_old or is_conditional(packet) or self.hosted.rule_turns.has_much()
        return packet.__class__ is p.Produce

    @property
    def is_busy(self) -> bool:
        """True while a request has no answer, or the client waits for a feature."""
        return bool(self.asked) or any(each.is_busy for each in self.feeders.values())

    def leave(self, reason: str) -> None:
        if self.tasks.ended.is_set():
            return
        if not self._left:
            self._leave_session(reason)
        self._step(self._door.close)
        self._step(partial(self.quota.leave, len(self.streams)))
        self.streams.clear()
        self._step(self._uncount)
        self.flush()
        logger.info(
            "session %s ended: %s (%d turns, %d bytes in, %d out)",
            self.session_id,
            reason,
            self.turns,
            self.received,
            self.sending.sent,
        )
        self.tasks.ended.set()

    def _uncount(self) -> None:
        """Counts this connection no more."""
        self.shared.guests.left(self)
        if self.shared.parts[PEERS].pop(self.number, None) is not None:
            self.shared.counts.left(self.hosted.name, self.turns, self.received, self.sending.sent)

    async def _end_session(self, reason: str) -> None:
        """Ends the session, or keeps it for its client; returns once what it owned is retracted."""
        for each in list(self.feeders.values()):
            await each.close_feeds()
        self._leave_session(reason)
        await trio.lowlevel.checkpoint()  # others that end in this moment share its turn
        await self.hosted.end_in_turns()

    def _leave_session(self, reason: str) -> None:
        """Feeds no stream any more; the session ends with the next ``end_due``, or waits for its client."""
        self._left = self.gone = True
        for each in self.feeders.values():
            end = partial(each.end, reason)
            if not self._step(end):
                self._step(end)  # what it had not come to, such as producers whose topics would wait for them
        if (state := self.state) is not None and not self._step(
            partial(self.hosted.sessions.leave, state, self)
        ):
            self._step(partial(self.hosted.sessions.abandon, state))  # else its facts and its jobs stay

    def _step(self, step: Callable[[], object]) -> bool:
        """Does one step of the end; a defect in it is logged, and holds back no other step.  False then."""
        try:
            step()
        except (LogFailed, Closed):
            pass  # the daemon is ending, and the next one retracts what the session had
        except Exception:  # a fence around one step: the others give back what the session has
            logger.exception("session %s could not be ended in order: a defect", self.session_id)
            return False
        return True

    # -- what the peer sends -------------------------------------------------------------------------

    async def act(self, packet: p.Packet) -> None:
        """Acts on a packet that ``act_at_once`` has not acted on."""
        if self.quota.account.is_paced:
            await self.quota.pace(packet)
        match packet:
            case p.Turn(at) if self.own.follows:
                self._send_on(at)
            case p.Turn(at) if at <= self.own.client.sequence:
                if self._old_turns is None:  # few clients send a turn again
                    self._old_turns = OldTurns(self)
                await self._old_turns.answer(at)
            case p.Turn():
                if is_conditional(packet):
                    await commit_conditional(self, packet)
                else:
                    self._turn(packet, self.own)
            case p.Open():
                self._open(packet)
            case p.Values(stream) if stream in self.streams:
                raise ProtocolError("unexpected", f"values for stream {stream}, which the daemon feeds")
            case p.Request():
                await answer(self, packet, self._served.verbs, self.limits.requests)
            case p.Hello():
                await self._welcome(packet)
            case p.Bye():
                self.has_parted = True  # answered at the end
            case _:  # of what nobody takes nothing follows
                if (taken := self._served.packets.get(packet.__class__)) is not None:
                    await self.feeder(taken).hear(packet)

    async def _welcome(self, hello: p.Hello) -> None:
        """Answers a hello with a welcome; raises ``ProtocolError`` for a peer that is not admitted."""
        try:
            if not hello.client:
                raise ProtocolError("malformed", "Hello.client must not be empty: turns are numbered by it")
            wanted = Wanted.read(hello.features)
        except ProtocolError as error:
            self.shared.watch.login_refused(self.who, error.code, error.text)
            raise
        resumed = await self.greet(hello.client, hello.name, wanted)
        hosted, own = self.hosted, self.own
        granted = Granted(
            heartbeat(self.limits, wanted),
            own.grace,
            own.secret,
            resumed,
            spoken(self._served.verbs, self._served.streams) if wanted.spoken else EMPTY,
            own.follows,
            wanted.topics and hosted.name != MAIN and self.shared.home.leads_each,
        )
        self.say(
            p.Welcome(
                p.VERSION,
                own.number,
                hosted.identity,
                hosted.visibility.newest,
                own.client.sequence,
                limits_of(hosted, self.hosted_limits),
                granted.packed(),
            )
        )

    async def greet(self, client: str, name: str, wanted: Wanted) -> bool:
        """Gives the peer what it wants, and a session; returns True if that is one to which it came back.

        ``client`` is the identity under which its turns are numbered, ``name`` what it calls itself.  Raises
        ``ProtocolError`` for a peer that is not admitted; for a wrong token only after a while.
        """
        try:
            follower = await self.shared.permit_of_follower(wanted.token)
            admitted = admit(self.shared, client, wanted, self.principal, OPEN if self.trusted else follower)
        except ProtocolError as error:
            self.shared.watch.login_refused(self.who, error.code, error.text)
            await self.quota.slow_down(self.address, error)
            raise
        self.bearer, self.hosted = admitted.bearer, admitted.hosted
        self.permit, self.trusted = self.bearer.permit, self.trusted or follower is not None
        if self.permit.until is not None:
            self.start(self._expel, self.permit.until)
        self.name, self.reads, self.is_here = name, wanted.reads, wanted.here
        self.shared.guests.greeted(self)
        self.quota.enter(self)
        self.state, resumed = self.hosted.sessions.greet(self, admitted.client, wanted)
        logger.info(
            "session %s: %r (%r) from %s, %s%s",  # quoted, so that no name writes lines of its own
            self.state.id,
            self.name,
            client,
            self.address,
            self.principal,
            " came back" if resumed else "",
        )
        self.sending.beat_at(heartbeat(self.limits, wanted))
        self.door.welcome(resumed=resumed)
        return resumed

    async def _expel(self, until: datetime) -> None:
        """Ends the connection when its token expires."""
        while (left := (until - datetime.now(UTC)).total_seconds()) > 0:  # noqa: ASYNC110  # no event tells the time
            await trio.sleep(min(left, CLOCK_SECONDS))  # the clock may be set meanwhile
        self.dismiss("unauthorized", f"the token expired at {until:%Y-%m-%dT%H:%M:%SZ}")

    def act_at_once(self, packet: p.Packet) -> bool:
        """Acts on a packet; returns False, and has done nothing, if that may take waiting."""
        kind = packet.__class__
        if kind is p.Turn:
            return self.commit_at_once(cast("p.Turn", packet))
        if kind is p.Ask or kind is p.Peek:
            asked = cast("p.Ask | p.Peek", packet)
            stream = self.streams.get(asked.stream)
            if stream is not None:
                if asked.__class__ is p.Ask:
                    stream.ask(asked.items, asked.bytes)
                    for each in self.feeders.values():
                        each.asked(stream)
                else:
                    stream.peeked = asked.items
                self.wake(stream)
        elif kind is p.Abort:
            abort = cast("p.Abort", packet)
            self._abort(abort.stream, wants_answer=abort.answer)
        elif kind is p.Ping:
            self.say(p.Pong(cast("p.Ping", packet).number))
        else:
            return kind is p.Pong  # which needs no answer
        return True

    def commit_at_once(self, turn: p.Turn) -> bool:
        """Acts on a turn; returns False, and has done nothing, if that may take waiting."""
        own = self.state
        assert own is not None  # as ``own``, without its call
        if turn.sequence <= own.client.sequence or own.follows or self.quota.account.is_paced:
            return False
        rules = self.hosted.rule_turns
        if (rules.times.pending or rules.settled is not None) and rules.has_much():
            return False
        if turn.expected or turn.others or not are_by_handle(turn.actions):  # as ``is_conditional``
            return commit_at_once(self, turn)
        self._turn(turn, own)
        return True

    def _turn(self, turn: p.Turn, own: SessionState) -> None:
        sequence, space, name, actions = turn[:4]
        hosted = self.hosted
        try:
            owner = self.owner_of(name) if name else own.owner
            hosted.check_space(space)
            if not self.permit.open:
                self.permit.check_actions(actions)
            if turn.done:
                commit_reporting(self, turn, owner)
            else:
                account, client = self.quota.account, own.client
                hosted.commit(
                    owner,
                    actions,
                    client=client,
                    sequence=sequence,
                    account=account,
                    on_durable=self.accept,
                    own=self.hosted_limits is not None,
                )
        except Refused as refusal:
            hosted.visibility.refuse(self.say, refused(sequence, refusal))
            return
        reach("turn-committed")
        self.turns += 1

    def _send_on(self, sequence: int) -> None:
        """Refuses a turn, and all later ones of this connection, because the daemon follows.

        Nothing of the turn is judged, since facts here may be old.  A later turn must not overtake it where
        the daemon leads meanwhile.
        """
        refusal = self.hosted.leader.refusal()
        self.say(p.Refusal(sequence, refusal.code, refusal.text, url=refusal.url))

    # -- streams --------------------------------------------------------------------------------------

    def _open(self, packet: p.Open) -> None:
        stream = OutStream(packet.stream, packet.items, packet.bytes)
        try:
            self.quota.take_stream(self.streams)
            self.streams[packet.stream] = stream
            self._feeder(packet.spec).open(stream, packet.spec)
        except Refused as refusal:
            self.fail(stream, refusal.code, refusal.text, refusal.url)
        except UsageError as error:
            self.fail(stream, "bad-request", str(error))

    async def prepare_open(self, spec: Map, work: Work) -> None:
        """Does in the lane what the opening of a stream, which follows at once, would need long for."""
        await self._feeder(spec).prepare_open(spec, work)

    def _feeder(self, spec: Map) -> Feeder:
        """Returns what feeds a stream; of a kind that is not known, that of observations refuses it."""
        kind, streams = spec.get("kind"), self._served.streams
        known = kind if isinstance(kind, str) and kind in streams else OBSERVE
        return self.feeder(streams[known])

    def _abort(self, number: int, *, wants_answer: bool) -> None:
        stream = self.streams.get(number)
        if stream is not None:
            stream.ended = True
            self.close(stream)
        else:
            self.withdraw(number)
            for key in self._served.streams.values():
                key.forget(self, number)
        if wants_answer:
            self.say(p.Done(number))


def serve_through(
    shared: DaemonState, door: ClientDoor, *, trusted: bool = False, hosted_limits: Limits | None = None
) -> ClientPeer:
    """Serves the client of a door, for which there is room (``Guests.refusal``).

    A ``trusted`` client needs no token, and the process of a hosted actor has limits of its own.
    """
    peer = ClientPeer(shared, door, shared.guests.new_number(), trusted=trusted, hosted_limits=hosted_limits)
    shared.counts.connections += 1
    shared.parts[PEERS][peer.number] = peer
    shared.guests.enter(peer)
    shared.guests.admit(peer)
    door.begin(peer)
    return peer
