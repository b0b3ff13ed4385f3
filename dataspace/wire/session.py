"""A session: which packet may come when, for either side, without any input or output.

One class serves both roles.  The machine is data: ``TRANSITIONS`` says for each role and state which
packets may be *received* and what follows; sending is checked against the other role's table, so that
each side also refuses to break the protocol itself.  ``feed`` takes bytes and gives packets, ``send``
takes a packet and gives bytes; the owner of a socket stands between them.

Always: any bytes give packets or ``ProtocolError``, and byte by byte gives the same as all at once;
after an error or a goodbye nothing more is accepted; stream numbers are opened once, in ascending order.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from dataspace.codec import MAX_DEPTH, MAX_ELEMENTS, pack, unpack
from dataspace.errors import ProtocolError, UsageError
from dataspace.wire import packets as p
from dataspace.wire.frames import MAX_FRAME, Cutter, frame
from dataspace.wire.outgoing import CLIENT_DEPTH, FrameLimits
from dataspace.wire.packets import Packet
from dataspace.wire.slices import PIECE_BYTES, unpacking
from index.values.values import Value

FIRST_FRAME: Final = 16 << 10
"""Bytes that a stranger may send in the frame that holds the hello."""


class Role(enum.Enum):
    """Which side of the connection this is."""

    CLIENT = "client"
    SERVER = "server"


class State(enum.Enum):
    """Where a side stands in what it may hear."""

    FRESH = "waiting for hello"
    GREETING = "waiting for welcome"
    TALKING = "talking"
    ENDED = "ended"


_BOTH = (p.Ask, p.Peek, p.Available, p.Values, p.Done, p.Error, p.Ping, p.Pong)
_ASKED = dict.fromkeys((p.Turn, p.Open, p.Offer, p.Abort, p.Request, p.Produce, *_BOTH), State.TALKING)
_TOLD = dict.fromkeys((p.Accepted, p.Refusal, p.Answer, p.Denied, p.Reached, *_BOTH), State.TALKING)

# What each role may receive: state -> packet -> next state.
TRANSITIONS: Final[dict[Role, dict[State, dict[type, State]]]] = {
    Role.SERVER: {
        State.FRESH: {p.Hello: State.TALKING, p.Bye: State.ENDED},
        State.TALKING: {**_ASKED, p.Bye: State.ENDED},
        State.ENDED: {},
    },
    Role.CLIENT: {
        State.GREETING: {p.Welcome: State.TALKING, p.Bye: State.ENDED},
        State.TALKING: {**_TOLD, p.Bye: State.ENDED},
        State.ENDED: {},
    },
}
ALL_HEARD: Final = frozenset(kind for packets in TRANSITIONS[Role.SERVER].values() for kind in packets)
"""The packets that a daemon takes."""

_STREAMED: Final = frozenset(
    [p.Open, p.Offer, p.Ask, p.Peek, p.Available, p.Abort, p.Values, p.Done, p.Error]
)
_MEASURED: Final = frozenset([p.Open, p.Offer, p.Request])
"""Packets with values of a client's caller; turns, and values of offers, are measured where they are made."""
_FIRST: Final = {Role.SERVER: State.FRESH, Role.CLIENT: State.GREETING}


class Session:
    """The protocol machine of one side of one connection, which writes and reads frames, or as its ``form``
    says."""

    __slots__ = (
        "_cutter",
        "_decode",
        "_depth",
        "_elements",
        "_encode",
        "_expected",
        "_heard",
        "_opened",
        "_resumed",
        "_said",
        "limits",
        "parted",
        "role",
        "size",
    )

    def __init__(
        self,
        role: Role,
        *,
        max_frame: int = MAX_FRAME,
        max_elements: int = MAX_ELEMENTS,
        form: Form | None = None,
    ) -> None:
        self.role = role
        self._elements = max_elements
        # A daemon has bounded what it passes on; to look again costs a client as much as to decode.
        self._depth = CLIENT_DEPTH if role is Role.SERVER else None
        self._cutter: BodyCutter = Cutter() if form is None else form.cutter
        self._cutter.limit = min(FIRST_FRAME, max_frame) if role is Role.SERVER else max_frame
        self._encode = encode if form is None else form.encode
        self._decode = None if form is None else form.decode
        self._hear(_FIRST[role])
        self._said = _FIRST[_other(role)]
        self.parted = False
        """Whether this side has said goodbye, after which it can say nothing."""
        self._opened = 0
        self._resumed = False
        self.limits = FrameLimits()
        """What a daemon takes, as its welcome says."""
        self.size = 0
        """Bytes in the body of the frame that held the latest packet: what a frame of values costs."""

    @property
    def state(self) -> State:
        """Where this side stands in what it may hear."""
        return self._heard

    @property
    def held(self) -> int:
        """Bytes of an unfinished frame that wait for the rest."""
        return self._cutter.held

    def allow_frames(self, limit: int) -> None:
        """Raises the frame limit once the peer has said who it is; in bytes."""
        self._cutter.limit = limit

    def resume(self) -> None:
        """Allows to abort streams that were opened over a connection before this one."""
        self._resumed = True

    def feed(self, chunk: bytes) -> Iterator[p.Packet]:
        """The packets that have become whole, one by one; to be consumed before the next chunk is fed.

        Raises ``ProtocolError`` in its place among the packets; it ends the session.
        """
        for packet in self.steps(chunk):  # a function of its own, because compiled expressions make lists
            if packet is not None:
                yield packet

    def steps(self, chunk: bytes) -> Iterator[p.Packet | None]:
        """The same, and None again and again while a large frame is read, so that others can work."""
        is_server, elements, depth = self.role is Role.SERVER, self._elements, self._depth
        try:
            for body in self._cutter.feed(chunk):
                if self._decode is not None:
                    value = yield from self._decode(
                        body, elements, depth or MAX_DEPTH, self._heard is State.FRESH
                    )
                elif self._heard is State.FRESH:
                    p.check_version(body)  # before anything else, since the rest depends on it
                    value = unpack(body, elements=elements, depth=depth)
                elif depth is not None and len(body) > PIECE_BYTES:
                    value = yield from unpacking(body, elements=elements, depth=depth)
                else:
                    value = unpack(body, elements=elements, depth=depth)
                packet = p.read(value, self._expected)
                if packet is None:
                    raise ProtocolError("unexpected", self._unexpected(value))
                after = self._expected[packet.__class__]
                if after is not self._heard:
                    self._pass_to(after, packet)
                if is_server and packet.__class__ in _STREAMED:
                    self._check_stream(packet)  # type: ignore[arg-type]  # narrowed by class
                self.size = len(body)
                yield packet
            if self._cutter.refusal is not None:
                raise self._cutter.refusal
        except ProtocolError:
            self._hear(State.ENDED)
            raise
        except RecursionError:  # to say what was wrong with it, in a client, which bounds no arrays
            self._hear(State.ENDED)
            raise ProtocolError("limit", "nested deeper than can be said") from None

    def _unexpected(self, value: Any) -> str:
        """Returns what is wrong with a packet that may not come now."""
        return f"{p.TABLE[value[0]][0].__name__} while {self._heard.value}, {self._allowed()}"

    def _pass_to(self, after: State, packet: p.Packet) -> None:
        """Enters the state that follows a received packet."""
        if packet.__class__ is p.Welcome:
            self.limits = FrameLimits.read(packet.limits)
        self._hear(after)

    def _hear(self, state: State) -> None:
        self._heard = state
        self._expected = TRANSITIONS[self.role][state]

    def send(self, packet: p.Packet) -> bytes:
        """The bytes of a packet; ``UsageError`` for a packet that may not be sent now.

        Raises ``Refused("limit")`` for values of a client beyond what its daemon takes: nothing was sent.
        """
        after = TRANSITIONS[_other(self.role)][self._said].get(packet.__class__)
        if after is None:
            raise UsageError(f"a {self.role.value} cannot send {type(packet).__name__} now")
        framed = self._encode(packet)
        if packet.__class__ in _MEASURED:
            self.limits.check_frame(framed)
        self._said = after
        self.parted = after is State.ENDED
        return framed

    def _allowed(self) -> str:
        names = sorted(kind.__name__ for kind in TRANSITIONS[self.role][self._heard])
        return f"allowed are {', '.join(names)}" if names else "nothing is allowed any more"

    def _check_stream(
        self,
        packet: p.Open | p.Offer | p.Ask | p.Peek | p.Available | p.Abort | p.Values | p.Done | p.Error,
    ) -> None:
        """A client numbers all streams, those it sends on and those it receives."""
        if packet.__class__ is p.Open or packet.__class__ is p.Offer:
            if packet.stream <= self._opened:
                raise ProtocolError(
                    "unexpected", f"stream {packet.stream} opened after stream {self._opened}"
                )
            self._opened = packet.stream
        elif packet.stream > self._opened and not (self._resumed and packet.__class__ is p.Abort):
            raise ProtocolError("unexpected", f"stream {packet.stream} was never opened")


def encode(packet: p.Packet) -> bytes:
    """The frame of a packet, whether or not it may be sent now."""
    return frame(pack(p.written(packet)))


def _other(role: Role) -> Role:
    return Role.CLIENT if role is Role.SERVER else Role.SERVER


# -- heartbeat -------------------------------------------------------------------------------------
#
# A broken line does not say so: a peer that lost its power or its route leaves a connection *half open*, on
# which nothing comes and into which one can write for minutes. So both sides promise to say something at
# least every interval, a ``Ping`` if there is nothing else, and a side that hears nothing for two intervals
# takes the line as lost. A peer that keeps the promise is not given up, however few of its bytes get through
# at a time (any byte counts); a peer that is gone is found within two intervals of its last byte.


class Heartbeat:
    """The beats of one connection; ``interval`` in seconds, infinite where none was agreed on.

    >>> beat = Heartbeat(10.0, now=100.0)
    >>> beat.said(104.0); beat.heard(103.0)
    >>> beat.due, beat.lost
    (114.0, 123.0)
    """

    __slots__ = ("_heard", "_said", "interval")

    def __init__(self, interval: float = math.inf, *, now: float = 0.0) -> None:
        self.interval = interval
        self._said = self._heard = now

    def said(self, now: float) -> None:
        """Something was handed to the kernel."""
        self._said = now

    def heard(self, now: float) -> None:
        """Something came, or we did not listen until now."""
        self._heard = now

    @property
    def due(self) -> float:
        """When to say something."""
        return self._said + self.interval

    @property
    def lost(self) -> float:
        """When to take the line as lost, unless something comes before."""
        return self._heard + 2 * self.interval


# -- forms -----------------------------------------------------------------------------------------
#
# A session machine cuts what is received into bodies, decodes each, and encodes what is sent. Over TCP that
# is ``frames`` and the codec. Another transport that has messages of its own, or another notation, gives the
# machine a form; everything that packets mean stays the machine's. A form decodes to the values that the
# codec would, and refuses as much.


Decode: TypeAlias = Callable[[bytes, int, int, bool], Generator[None, None, Value]]
"""Gets a body, the most elements and levels of it, and whether it is the first: yields between two steps."""

Framed: TypeAlias = Callable[[int, int, int, bytes, int], tuple[bytes, int]]
"""Gets stream, first, count, the packed values and how many are left: returns a packet of values as it is
sent, and its cost in credit."""


class BodyCutter(Protocol):
    """Cuts received bytes into bodies, as ``Cutter`` does."""

    limit: int
    refusal: ProtocolError | None

    def feed(self, chunk: bytes) -> Iterable[bytes]:
        """Returns the bodies that are whole now, to be consumed before the next chunk is fed."""

    @property
    def held(self) -> int:
        """Bytes of an unfinished body that are kept."""


@dataclass(frozen=True, slots=True)
class Form:
    """How one connection writes and reads packets; without ``decode`` its bodies are msgpack."""

    cutter: BodyCutter
    encode: Callable[[Packet], bytes]
    framed: Framed
    decode: Decode | None = None
