"""The door of a real daemon: a program is carried out by its clients, and the model explains what was seen.

An observer of everything, to which nothing is shown that is not on disk, has the epochs; after each operation
they are all known, with all answers that will come.  One daemon serves many programs, each in a new space.

Always: no time decides, but those of epochs and of clients in the bounds that were promised; waiting is for
an answer, with a limit that means that something hangs.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection
from json import dumps, loads
from typing import Any, Final

from dataspace.kernel.derivation import RULES
from dataspace.wire import packets as wire
from dataspace.wire.packets import Packet
from index.patterns.text import parse_pattern
from index.values.jsons import to_json
from index.values.values import Map, Record, Value, key
from tests.generated.clients import (
    AHEAD,
    BYE,
    CUT,
    DURABLE,
    EARLIER,
    FIRST,
    GRACES,
    LEASE,
    NOW,
    Action,
    Again,
    Burst,
    Come,
    Forget,
    Lease,
    Operation,
    Outlast,
    Pass,
    Post,
    Program,
    Restart,
    Stall,
    Step,
    Strike,
    Turn,
    Watch,
)
from tests.generated.covering import Covered
from tests.generated.explaining import Unexplained, explain
from tests.generated.programs import HANDLES
from tests.generated.serving import PATIENCE, TRIMS_EVERY, Connection, Lost, Server
from tests.generated.streams import Stream
from tests.model import daemon as model
from tests.model.conditions import ABSENT
from tests.model.space import ASSERT, PUT, REPLACE, RETRACT, SEND, STATE, SWEEP, UNSTATE

READER: Final = "door"
"""The reader that says what a log may forget."""
WORTH: Final = 100_000
"""The bytes of a message for which a log writes its state anew."""
LOOKS: Final = 4
"""How often a log is waited for that needs a new state first, or keeps what rules need."""
SPACES: Final = 40
"""Programs of one daemon."""
NUMBERS: Final = 1_000_000_000
"""Numbers of sessions in one term: WIRE.md, *status*."""
CREDIT: Final = 1 << 40
NOTHING: Final = -1
"""In place of an event that is not noted."""


class Difference(Exception):
    """The daemon did what the model does not allow."""


def micros() -> int:
    """Returns the present time as epochs have it."""
    return time.time_ns() // 1_000


class Client:
    """One client: its connection, its session, and what has come to pass since the last segment."""

    def __init__(self, run: DaemonRun, name: str) -> None:
        self.run, self.name, self.grace = run, name, GRACES[name]
        self.connection: Connection | None = None
        self.session = ""
        self.ticket: Value = None
        self.sequence = self.request = self.stream = 0
        self.turns: list[tuple[int, Turn]] = []
        self.repeated: set[int] = set()
        self.streams: dict[str, Stream] = {}
        self.is_cut = False
        """True once it has cut its line itself, so that what it sent last may not have come."""
        self.is_leaving = False
        """True once it has said goodbye, which a daemon that is killed may have heard."""
        self.overtaken: set[int] = set()
        """The streams that go on after an epoch that is gone, and must be told so."""
        self.ended: list[Stream] = []
        """Observations of whose end the daemon may not have heard."""
        self.lane: list[model.Event] = []
        self.waiting: dict[tuple[str, int], list[int]] = {}
        """The places in the lane of what is not answered, by kind and number."""

    # -- connections ----------------------------------------------------------------------------------

    def connect(self, *, anew: bool = False) -> Connection:
        """Connects unless it is; returns the connection."""
        if self.connection is not None:
            return self.connection
        features: dict[str, Value] = {"space": self.run.space}
        if self.grace:
            features["grace"] = self.grace
        if self.ticket is not None and not anew:
            features["resume"] = self.ticket
        sent = micros()
        self.connection = Connection(self.run.server.socket, self.name, features)
        welcome = self.connection.welcome
        granted = welcome.features
        is_resumed = granted.get("resumed") is True
        session = _session(welcome.session)
        if self.session:
            is_asked = "resume" in features
            self.lane.append(
                model.Returned(self.session, is_resumed, sent) if is_asked else model.Ended(self.session)
            )
        if is_resumed and session != self.session:
            raise Difference(f"the session {session} is resumed for {self.session}")
        self.ticket = (welcome.session, granted["secret"]) if "secret" in granted else None
        self.sequence = max(self.sequence, welcome.sequence)
        if is_resumed:
            self._reopen()
            self._outlast_ended()
        else:
            self.streams.clear()
            self.run.held.pop(self.session, None)
        self.session = session
        return self.connection

    def _reopen(self) -> None:
        assert self.connection is not None  # it has just come back
        for stream in sorted(self.streams.values(), key=lambda each: each.number):
            stream.broken()
            self.connection.write(self._opened(stream))
            self.lane.append(model.Announced(self.session, stream.number, stream.pattern))
        if self.streams:
            self.mark()  # what an observer is asked later must come after them

    def _outlast_ended(self) -> None:
        """Waits until no interest is left of what has ended, within its grace if a crash has lost the end.

        What the client's own cut may have lost it says again.
        """
        if self.is_cut and self.connection is not None:
            self.connection.write(*[wire.Abort(each.number, "", False) for each in self.ended])
        self.is_cut = False
        self.lane += [model.Announced(self.session, each.number) for each in self.ended]
        owner, most = f"{self.session} interests", len(self.streams)
        while ("request", self.request) in self.waiting:
            self._hear_next()  # the mark: only then there are all interests of what was opened again
        if self.ended:
            self.run.wait_until(lambda claims: sum(n for (at, _), n in claims if at == owner) <= most, owner)
        self.ended.clear()

    def gone(self, end: str) -> None:
        """Notes that its connection is over: the session ends, or may come back."""
        if self.connection is None:
            return
        until = 0 if self.is_leaving else micros() + 1_000 * self.grace  # before the daemon can know
        self.connection.close()
        self.connection = None
        self.waiting.clear()
        self._leave({*self.overtaken})
        if end == CUT:
            self.lane[:] = [self._not_sure(each, self.name) for each in self.lane]
            self.run.aside[:] = [self._not_sure(each, "") for each in self.run.aside]
        if end == BYE or self.ticket is None:
            self.lane.append(model.Ended(self.session))
            self.session, self.ticket = "", None
        else:
            self.lane.append(model.Broken(self.session, until))

    def _not_sure(self, event: model.Event, sender: str) -> model.Event:
        """Returns an event that the daemon may not have come to, if it is of an interest of its session."""
        if isinstance(event, model.Announced) and event.session == self.session and event.sender is None:
            return event._replace(sender=sender)
        return event

    def come(self, anew: bool) -> None:
        """Connects in place of an earlier connection, if that is there."""
        before, self.connection = self.connection, None
        if before is not None:
            self.waiting.clear()
            self._leave({*self.overtaken})
            if self.ticket is not None and not anew:
                self.lane.append(model.Broken(self.session, model.FOREVER))
        self.connect(anew=anew)
        if before is not None:
            with suppress(Lost):  # superseded
                while True:
                    before.next()
            before.close()
        if self.streams:  # they begin again
            self.hear_all()

    def _leave(self, overtaken: set[int]) -> None:
        """Notes that nobody has heard whether streams were told that their epochs are gone."""
        self.run.aside += [model.Announced(self.session, each, None, "") for each in sorted(overtaken)]
        self.overtaken -= overtaken

    # -- what it sends --------------------------------------------------------------------------------

    def packets(self, burst: Burst) -> list[Packet]:
        """Returns the packets of a burst, and notes what is expected of each."""
        self.repeated.clear()
        made = [packet for step in burst.steps for packet in self._packets(step)]
        self.is_leaving = burst.end == BYE
        return [*made, wire.Bye("", "")] if self.is_leaving else made

    def _packets(self, step: Step) -> Iterator[Packet]:
        match step:
            case Turn():
                self.sequence += 1
                resolved = step._replace(
                    actions=self._resolved(step.owner, step.actions),
                    others=tuple([(owner, self._resolved(owner, each)) for owner, each in step.others]),
                    expected=self.run.expected(step.expected),
                )
                self.turns.append((self.sequence, resolved))
                yield self._sent(self.sequence, resolved)
            case Again(back) if len(self.turns) > back:
                number, turn = self.turns[-1 - back]
                if number not in self.repeated:  # repetitions that wait together have one answer
                    self.repeated.add(number)
                    yield self._sent(number, turn)
            case Lease(verb):
                self.request += 1
                self._note("request", self.request, model.Leased(verb, LEASE, None, micros()))
                yield wire.Request(self.request, verb, Map({"owner": LEASE}))
            case Watch(text) if text in self.streams:
                stream = self.streams.pop(text)
                self.ended.append(stream)
                self._leave({stream.number} & self.overtaken)
                self.lane.append(model.Announced(self.session, stream.number))
                yield wire.Abort(stream.number, "", False)
            case Watch(text, after):
                yield self._watched(text, self.run.roles()[after] if after else -1)

    def _watched(self, text: str, after: int = -1) -> Packet:
        self.stream += 1
        stream = self.streams[text] = Stream(self.stream, parse_pattern(text), after)
        self.lane.append(model.Announced(self.session, stream.number, stream.pattern))
        return self._opened(stream)

    def _opened(self, stream: Stream) -> Packet:
        more = {} if stream.after is None else {"after": stream.after}
        if stream.after is not None and stream.after + 1 < self.run.oldest:
            self.overtaken.add(stream.number)
        spec: dict[str, Value] = {"pattern": stream.pattern, "durable": True, **more}
        return wire.Open(stream.number, Map(spec), CREDIT, CREDIT)

    def _begin_again(self, number: int, code: str, said: str) -> None:
        """Opens a pattern, whose stream was told that its epochs are gone, once more and with a state."""
        found = [pair for pair in self.streams.items() if pair[1].number == number]
        if not found:  # it was not wanted any more
            return
        [(text, stream)], is_due = found, number in self.overtaken
        self.overtaken.discard(number)
        after = stream.after
        if code != "epoch-gone" or after is None or not (is_due or after + 1 < self.run.ask_oldest()):
            raise Difference(f"a stream after {after} ends with {code}: {said}")
        self.run.aside.append(model.Announced(self.session, number))
        if not self.is_leaving:
            assert self.connection is not None  # by which it is told
            self.connection.write(self._watched(text))
            self.mark()

    def hear_streams(self, epochs: Sequence[model.Seen], values: Mapping[object, Value]) -> None:
        """Waits until each of its observations is shown what it should be, and no more."""
        for text, stream in self.streams.items():
            while self.connection is not None and stream.begun < 0:
                self._hear_next()
            expected = stream.expected(epochs, values)
            while self.connection is not None and len(stream.shown) < len(expected):
                self._hear_next()
            most = min(len(expected), len(stream.shown))  # a lease may end meanwhile
            if stream.shown[:most] != expected[:most]:
                at = next(at for at in range(most) if stream.shown[at] != expected[at])
                raise Difference(f"{text} is shown {stream.shown[at:]}, the model says {expected[at:]}")

    def _sent(self, number: int, turn: Turn) -> Packet:
        parts = ((turn.owner or self.session, turn.actions), *turn.others)
        named = tuple([(owner or self.session, _read(actions)) for owner, actions in parts])
        event = model.Turned(self.name, number, named, turn.expected, None, micros())
        self._note("turn", number, event)
        return wire.Turn(
            number,
            self.run.space,
            turn.owner,
            _read(turn.actions),
            turn.expected,
            tuple([(owner, _read(actions)) for owner, actions in turn.others]),
        )

    def _note(self, kind: str, number: int, event: model.Event) -> None:
        self.waiting.setdefault((kind, number), []).append(len(self.lane))
        self.lane.append(event)

    def _resolved(self, owner: str, actions: Sequence[Action]) -> tuple[Action, ...]:
        """Returns actions with the handles that their roles stand for."""
        held = self.run.held[owner or self.session]
        return tuple([_with_handles(action, held) for action in actions])

    # -- what it hears ----------------------------------------------------------------------------------

    def mark(self) -> None:
        """Asks for an answer that comes after all that was sent before."""
        assert self.connection is not None  # as the callers know
        self.request += 1
        self.waiting["request", self.request] = [NOTHING]
        self.connection.write(wire.Request(self.request, "sync", Map({})))

    def hear_all(self) -> None:
        """Waits until everything is answered, or the connection is over."""
        while self.connection is not None and (self.waiting or self.overtaken):
            self._hear_next()
        if self.connection is not None:
            self.ended.clear()

    def hear_goodbye(self) -> None:
        """Waits for the end of the connection, after its own goodbye."""
        while self.connection is not None:
            try:
                self._hear(self.connection.next())
            except Lost:
                self.gone(BYE)
            except TimeoutError:
                raise Difference(f"the connection of {self.name} does not end after a goodbye") from None

    def hear_rest(self) -> None:
        """Hears what was answered before the end of a daemon."""
        while self.connection is not None:
            self._hear_next()

    def _hear_next(self) -> None:
        assert self.connection is not None  # as the callers ask
        try:
            self._hear(self.connection.next())
        except Lost as lost:
            self.lost(str(lost))
        except TimeoutError:
            raise Difference(f"{self.name} gets no answer, or is not shown all") from None

    def lost(self, code: str) -> None:
        """Notes that the daemon has ended the connection."""
        if code not in ("", "closing"):
            raise Difference(f"a session ends with {code}")
        self.gone(CUT)

    def _hear(self, packet: Packet) -> None:
        match packet:
            case wire.Accepted(first, epochs):
                for number, epoch in enumerate(epochs, first):
                    self._answer("turn", number, epoch)
            case wire.Refusal(number, code):
                self._answer("turn", number, code)
            case wire.Answer(number, value):
                is_fresh = isinstance(value, Map) and value["fresh"] is True
                self._answer("request", number, is_fresh)
            case wire.Denied(number, code):
                self._answer("request", number, code)
            case wire.Values(number, _, values):
                for stream in self.streams.values():
                    if stream.number == number:
                        stream.take(values)
            case wire.Error(number, code, text):
                self._begin_again(number, code, text)

    def _answer(self, kind: str, number: int, answer: int | str | bool) -> None:
        places = self.waiting.get((kind, number))
        if not places:
            raise Difference(f"{kind} {number} is answered with {answer}, and nothing was asked")
        place = places.pop(0)
        if not places:
            del self.waiting[kind, number]
        if place == NOTHING:
            return
        event = self.lane[place]
        assert isinstance(event, model.Turned | model.Leased)  # as it was noted
        self.lane[place] = event._replace(answer=answer, heard=micros())  # type: ignore[arg-type]  # as asked


class DaemonRun:
    """One program in one space of a daemon."""

    def __init__(self, server: Server, space: str) -> None:
        self.server, self.space = server, space
        self.forgets = space.startswith("f")
        self.clients = {name: Client(self, name) for name in GRACES}
        self.web: list[model.Event] = []
        self.aside: list[model.Event] = []
        """The ends of streams for which epochs are gone, which the daemon notes when it comes to them."""
        self.segments: list[model.Segment] = []
        self.epochs: list[model.Seen] = []
        self.oldest = 0
        """The first epoch that the log had when it was asked last."""
        self.latest = [0, 0]
        """The numbers of the last two epochs of segments."""
        self.steps = 0
        """How many packets with a verb, and requests over HTTP, clients have sent."""
        self.held: defaultdict[str, set[int]] = defaultdict(set)
        """The handles that each owner has, as far as its clients know."""
        self.part: list[Any] = []
        self.values: dict[object, Value] = {}
        self.request = self.stream = self.seen = 0
        self.numbered: list[tuple[int, Post]] = []
        self._observe()
        self.begun = self.seen
        """The epoch after which the log has all that was shown."""
        if self.forgets:
            self.ask("acknowledge", reader=READER, epoch=self.begun)

    # -- the observer of everything -------------------------------------------------------------------

    def _observe(self) -> None:
        """Observes from now on; what is missing is read from the log."""
        self.observer = Connection(self.server.socket, "observer", {"space": self.space, "read": True})
        self.observing = _session(self.observer.welcome.session)
        self.part, newest = [], self.ask("sync")
        if newest != self.seen:
            self._open(after=self.seen, upto=newest)
            while not isinstance(packet := self.observer.next(), wire.Done):
                self._read(packet)
            self.seen = newest  # a start leaves numbers out
        self._open(after=self.seen)

    def _open(self, **more: Value) -> None:
        self.stream += 1
        spec = {"pattern": parse_pattern("$x"), "quiet": True, "durable": True, **more}
        self.observer.write(wire.Open(self.stream, Map(dict(spec)), CREDIT, CREDIT))

    def _read(self, packet: Packet) -> Any:
        """Takes what the observer is sent; returns the value of an answer."""
        match packet:
            case wire.Answer(_, value):
                return value
            case wire.Denied(_, code, text) | wire.Error(_, code, text):
                raise Difference(f"an observer gets {code}: {text}")
            case wire.Values(self.stream, _, values):
                epochs: Any = values
                for number, at, flags, *rows, _first in epochs:
                    self._take(number, at, flags, rows)
        return None

    def _take(self, number: int, at: int, flags: int, rows: Sequence[Sequence[Sequence[Value]]]) -> None:
        if not self.part:
            self.part = [[], [], []]
        for kept, some in zip(self.part, rows, strict=True):
            self.values.update((key(row[0]), row[0]) for row in some)
            kept += [key(row[0]) for row in some]
        if flags & 1:
            return
        (added, messages, removed), self.part = self.part, []
        self.seen = number
        seen = model.Seen(number, at, frozenset(added), tuple(messages), frozenset(removed))
        self.epochs.append(seen)

    def ask(self, verb: str, **arguments: Value) -> Any:
        """Returns the answer to a request of the observer."""
        self.request += 1
        self.observer.write(wire.Request(self.request, verb, Map(dict(arguments))))
        while True:
            packet = self.observer.next()
            value = self._read(packet)
            if isinstance(packet, wire.Answer):
                return value

    def settle(self) -> None:
        """Waits until everything is known; what came to pass since is one segment."""
        newest = self.ask("sync")
        while self.seen < newest:
            try:
                self._read(self.observer.next())
            except TimeoutError:
                raise Difference(f"an observer is not shown epoch {newest}") from None
        self._end_segment(self.ask_oldest())

    def _end_segment(self, oldest: int, claims: model.Claims | None = None) -> None:
        """Adds what came to pass since the last segment, of a log whose oldest epoch is known."""
        epochs = tuple(self.epochs)
        self._add_segment(model.Segment(self._lanes(), epochs, micros(), claims, oldest=oldest))
        if "Traceback" in (said := self.server.said()):
            raise Difference(f"the daemon's log has an error: {said[-300:]}")

    def _add_segment(self, segment: model.Segment) -> None:
        self.segments.append(segment)
        self.latest = [*self.latest, *[each.number for each in segment.epochs]][-2:]
        self.epochs = []

    def _lanes(self) -> tuple[tuple[model.Event, ...], ...]:
        lanes = [each.lane for each in self.clients.values()] + [self.web, *[[each] for each in self.aside]]
        self.aside.clear()
        taken = tuple([tuple(lane) for lane in lanes if lane])
        for lane in lanes:
            lane.clear()
        return taken

    # -- operations -----------------------------------------------------------------------------------

    def carry_out(self, operation: Operation) -> None:
        """Does one operation, and waits until everything is known."""
        match operation:
            case Burst():
                self._send([operation])
                self._hear([operation])
            case Stall(bursts, millis):
                self._stall(bursts, millis)
            case Strike(burst, millis):
                self._send([burst])
                time.sleep(millis / 1_000)
                self._restart(orderly=False)
            case Come(client, anew):
                self.clients[client].come(anew)
            case Restart(orderly):
                self._restart(orderly)
            case Pass(millis):
                time.sleep(millis / 1_000)
            case Post():
                self._post(operation)
            case Outlast():
                self._outlast()
            case Forget():
                self._forget()
        self.settle()

    def _forget(self) -> None:
        """Says that all that was shown may go, and waits until the log has looked.

        It needs a new state first, for which a message makes it worth while, and another one keeps its place.
        """
        for message in (Record("more", "x" * WORTH), Record("more")):
            self._post(Post(DURABLE, ((SEND, message),)))
            self.settle()
        self.begun = self.seen
        self.ask("acknowledge", reader=READER, epoch=self.begun)
        for _ in range(LOOKS):
            if self.ask_oldest() >= self.seen:  # the last of them may stay
                break
            time.sleep(TRIMS_EVERY)

    def ask_oldest(self) -> int:
        """Returns the first epoch that the log has; 0 if it keeps all."""
        self.oldest = int(self.ask("frontier")["oldest"]) if self.forgets else 0
        return self.oldest

    def _send(self, bursts: Iterable[Burst]) -> None:
        for burst in bursts:
            client = self.clients[burst.client]
            connection = client.connect()
            packets = client.packets(burst)
            self.steps += sum(not isinstance(each, wire.Bye) for each in packets)
            connection.write(*packets)
            if burst.end == CUT:
                client.is_cut = True
                client.gone(CUT)

    def _hear(self, bursts: Iterable[Burst]) -> None:
        for burst in bursts:
            client = self.clients[burst.client]
            if burst.end == BYE:
                session = client.session
                client.hear_goodbye()
                self._wait_until_noticed(session)
            elif burst.end == CUT:
                self._wait_until_noticed()
            else:
                if any(isinstance(step, Watch) for step in burst.steps):
                    client.mark()
                client.hear_all()

    def _wait_until_noticed(self, over: str = "") -> None:
        """Waits until the daemon knows of lines that were cut, so that it has done what came by them.

        A session that is ``over``, since its client said goodbye, must not wait for the client.
        """
        connected = {each.session for each in self.clients.values() if each.connection is not None}
        end = time.monotonic() + PATIENCE
        while True:
            listed = [each for each in self.ask("sessions") if each["space"] == self.space]
            states = {f"session:{each['id']}": each["state"] for each in listed}
            if states.get(over) == "suspended":
                raise Difference(f"{over} waits for its client, which said goodbye")
            there = {each for each, state in states.items() if state == "connected"}
            if there <= {*connected, self.observing}:
                return
            if time.monotonic() > end:
                raise Difference(f"sessions stay connected: {there - connected}")
            time.sleep(0.005)

    def _stall(self, bursts: Sequence[Burst], millis: int) -> None:
        for burst in bursts:
            self.clients[burst.client].connect()
        os.kill(self.server.process.pid, signal.SIGSTOP)
        try:
            self._send(bursts)
            time.sleep(millis / 1_000)
        finally:
            os.kill(self.server.process.pid, signal.SIGCONT)
        self._hear(bursts)

    def _restart(self, orderly: bool) -> None:
        """What was done before, and shown after: of that the epochs may be of either."""
        self.server.end(signal.SIGTERM if orderly else signal.SIGKILL)
        ended, graces = micros(), list[tuple[str, int]]()
        for client in self.clients.values():
            client.hear_rest()
            if client.ticket is not None:
                graces.append((client.session, 1_000 * client.grace))
        self.observer.close()
        lanes, begun = self._lanes(), micros()
        self.server.start()
        self._observe()
        epochs, oldest = tuple(self.epochs), self.ask_oldest()
        self._add_segment(model.Segment(lanes, epochs, micros(), is_open=True, oldest=oldest))
        self.web.append(model.Restarted(orderly, ended, begun, tuple(graces)))

    def _post(self, post: Post) -> None:
        number = 0
        if post.number > 1 and self.numbered:
            number, post = self.numbered[-1]
        elif post.number:
            number = len(self.numbered) + 1
        expected = self.expected(post.expected)
        if number > len(self.numbered):
            self.numbered.append((number, post))
        actions = [{_WORDS[verb]: to_json(fact)} for verb, fact in post.actions]
        body: dict[str, object] = {"owner": post.owner, "actions": actions}
        body["expect"] = [
            {"absent": text} if kind == ABSENT else {"unchanged": text, "since": more[1]}
            for (kind, text, *_), more in zip(post.expected, [each[1:] for each in expected], strict=True)
        ]
        if number:
            body |= {"client": "door", "sequence": number}
        self.steps += 1
        sent = micros()
        answer = self._posted(dumps(body))
        parts = ((post.owner, post.actions),)
        event = model.Turned("door", number, parts, expected, answer, sent, micros(), grants=True)
        self.web.append(event)

    def _posted(self, body: str) -> int | str:
        """Returns the epoch of a turn over HTTP, or the code of its refusal."""
        connection = HTTPConnection("127.0.0.1", self.server.web, timeout=PATIENCE)
        path = f"/v1/spaces/{self.space}/turns"
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        said = loads(response.read())
        connection.close()
        return int(said["epoch"]) if response.status == 200 else str(said["code"])

    def roles(self) -> dict[str, int]:
        """Returns the epochs that roles stand for."""
        return {NOW: self.latest[-1], EARLIER: self.latest[-2], FIRST: 0, AHEAD: 1 << 40}

    def expected(self, expected: Sequence[tuple[Any, ...]]) -> tuple[tuple[Any, ...], ...]:
        """Returns what a turn expects with the epochs that roles stand for, and patterns as values."""
        epochs = self.roles()
        return tuple(
            [
                (
                    kind,
                    parse_pattern(text),
                    *[epochs[each] if isinstance(each, str) else each for each in more],
                )
                for kind, text, *more in expected
            ]
        )

    # -- the end --------------------------------------------------------------------------------------

    def claims(self) -> model.Claims:
        """Returns all claims, as the daemon says."""
        said = self.ask("owners", pattern=parse_pattern("_"), most=10_000)
        pairs = [(each["owner"], key(each["fact"])) for each in said]
        named = [(str(owner).removeprefix("durable:"), fact) for owner, fact in pairs if owner != RULES]
        return frozenset(Counter(named).items())

    def wait_until(self, holds: Callable[[model.Claims], bool], whose: object) -> None:
        """Waits until something is true of all claims."""
        end = time.monotonic() + PATIENCE
        while not holds(self.claims()):
            if time.monotonic() > end:
                raise Difference(f"facts stay that should not: of {whose}")
            time.sleep(0.02)

    def _wait_without(self, *owners: str) -> None:
        """Waits until sessions and leases claim nothing any more."""
        named = {name for each in owners for name in (each, f"{each} interests")}
        self.wait_until(lambda claims: not any(owner in named for (owner, _), _ in claims), owners)

    def _outlast(self) -> None:
        away = [each.session for each in self.clients.values() if each.connection is None and each.session]
        self._wait_without(LEASE, *away)

    def finish(self) -> None:
        """All clients say goodbye; then the facts, their owners and the log are as the model says."""
        epochs = [each for segment in self.segments for each in segment.epochs]
        for client in self.clients.values():
            client.hear_streams(epochs, self.values)
        sessions = {each.session: each for each in self.clients.values() if each.connection is not None}
        for client in sessions.values():
            self._send([Burst(client.name, (), BYE)])
            client.hear_goodbye()
        self._wait_without(*sessions)
        self.carry_out(Post(DURABLE, ((SEND, Record("last")),)))
        while True:
            oldest, before, claims = self.ask_oldest(), self.seen, self.claims()
            if self.ask("sync") == before == self.seen:  # an epoch that is shown now is newer than the claims
                break
            self.settle()
        self._end_segment(oldest, claims)
        self._read_log()
        one = model.Daemon()
        one.is_exact = False  # an earlier program may have killed the daemon
        try:
            explain(one, self.segments)
        except Unexplained as unexplained:
            raise Difference(str(unexplained)) from None

    def _read_log(self) -> None:
        """Reads the log from its beginning, or from where it may not let go, which has what was shown."""
        epochs = [each for segment in self.segments for each in segment.epochs]
        shown, self.epochs = [each for each in epochs if each.number > self.begun], []
        self._open(after=self.begun, upto=self.seen)
        while not isinstance(packet := self.observer.next(), wire.Done):
            self._read(packet)
        if self.epochs != shown:
            raise Difference(f"the log has {self.epochs}, and shown was {shown}")

    def close(self) -> None:
        """Ends all connections."""
        self.observer.close()
        for client in self.clients.values():
            if client.connection is not None:
                client.connection.close()


def _session(number: int) -> str:
    """Returns the owner of a session: its term is in the billions."""
    return f"session:{number // NUMBERS}.{number % NUMBERS}"


_WORDS: Final = {STATE: "assert", UNSTATE: "retract", SEND: "send"}


def _read(actions: Sequence[Action]) -> tuple[Action, ...]:
    """Returns actions with their patterns as values."""
    return tuple([(SWEEP, parse_pattern(each[1])) if each[0] == SWEEP else each for each in actions])


def _with_handles(action: Action, held: set[int]) -> Action:
    """Returns an action with the handles that its roles stand for, and changes what is ``held`` as it does.

    The last role is that handle, whatever is held.
    """
    verb, *rest = action
    free = [each for each in range(HANDLES) if each not in held]
    known = sorted(held)
    if verb in (RETRACT, REPLACE):
        rest[0] = known[rest[0] % len(known)] if known and rest[0] < HANDLES - 1 else rest[0]
        held.discard(rest[0])
    if verb in (ASSERT, PUT, REPLACE):
        at = int(verb == REPLACE)
        rest[at] = free[rest[at] % len(free)] if free and rest[at] < HANDLES - 1 else rest[at]
        held.add(rest[at])
    return verb, *rest


class _Pool:
    """The daemon that serves the next program, and how much all of them have taken."""

    def __init__(self) -> None:
        self.server: Server | None = None
        self.used = 0
        self.cpu_before = 0.0

    def space(self, *, forgets: bool) -> tuple[Server, str]:
        """Returns a daemon, and a space of it that nobody has used, whose log forgets or keeps all."""
        if self.server is None or not self.server.is_running or self.used == SPACES:
            self.close()
            self.server, self.used = Server(SPACES), 0
        self.used += 1
        return self.server, f"{'f' if forgets else 's'}{self.used - 1}"

    def cpu(self) -> float:
        """Returns the seconds of CPU of all daemons."""
        return self.cpu_before + (self.server.cpu() if self.server is not None else 0.0)

    def close(self) -> None:
        """Ends the daemon."""
        if self.server is not None:
            self.cpu_before += self.server.cpu()
            self.server.close()
            self.server = None


POOL: Final = _Pool()
COVERED: Final = Covered()
"""What the programs of this process had."""
SEEN: Final[list[model.Segment]] = []
"""What was seen of the latest program that failed."""


def cpu() -> float:
    """Returns the seconds of CPU that programs have taken: of this process, and of the daemons."""
    return time.process_time() + POOL.cpu()


def failure(program: Program) -> str | None:
    """Returns what is different for a program, with the number of the operation; None if nothing is."""
    at, run = 0, None
    try:
        run = DaemonRun(*POOL.space(forgets=any(isinstance(each, Forget) for each in program)))
        for operation in program:
            run.carry_out(operation)
            at += 1
        run.finish()
        COVERED.add(program, run.segments, run.steps)
    except Difference as difference:
        SEEN[:] = [] if run is None else run.segments
        return f"{at}: {difference}"
    except Lost as lost:
        said = POOL.server.said()[-500:] if POOL.server is not None else ""
        POOL.close()
        return f"{at}: a connection is lost ({lost}): {said}"
    finally:
        if run is not None:
            run.close()
    return None
