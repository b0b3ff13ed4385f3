"""Sessions that wait for a daemon which is behind what their client has seen.

A daemon that follows another one may be a little behind.  A session is at one while no daemon leads, or all
the time if it only reads.  Streams wait here until the daemon has the epochs that the client has seen, above
all of its own turns.

Always: no observation is opened at a daemon that does not have the epoch which the client had seen by then;
streams are opened in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from dataspace.client.session.events import ConnectionEvent
from dataspace.client.session.identity import ClientIdentity
from dataspace.client.session.pending import Stream
from dataspace.client.session.session import ClientSession
from dataspace.errors import Broken, Closed, ProtocolError, Refused, UsageError
from dataspace.loops.here import loop
from dataspace.transport.addresses import Address
from dataspace.transport.credentials import Credentials
from dataspace.wire import packets as p
from index.values.values import Map, Value

BEHIND_SECONDS: Final = 5.0
"""How long a daemon that is behind is waited for, before another one is tried."""


RETRY_SECONDS: Final = 0.1
"""How long until a daemon is asked again that does not reach its store."""


class CatchingUpSession(ClientSession):
    """A client session whose quiet observations wait until the daemon has the epochs that were seen before
    the connection began; later epochs come from that daemon."""

    def __init__(
        self,
        addresses: Sequence[Address],
        identity: ClientIdentity,
        credentials: Credentials,
        *,
        reconnect: bool,
        reassert: bool = True,
        wait: float = 0.0,
        timeout: float | None = None,
        on_connection: Callable[[ConnectionEvent], None] | None = None,
        traces: bool = False,
    ) -> None:
        super().__init__(
            addresses,
            identity,
            credentials,
            reconnect=reconnect,
            reassert=reassert,
            wait=wait,
            timeout=timeout,
            on_connection=on_connection,
            traces=traces,
        )
        self._seen_before = 0
        """What the client had seen when this connection began."""
        self._reached = 0
        """The epoch that the daemon has."""
        self._held: dict[int, int] = {}
        """The epochs that streams wait for, by their numbers."""
        self._asked = 0
        """The epoch that requests wait for."""
        self._is_catching_up = self._is_opening = False
        self._came = loop().event()

    @property
    def _least(self) -> int:
        return self._seen_before

    def _waits(self, spec: Map) -> bool:
        """Returns whether a stream with this spec may be of a daemon that is behind."""
        return spec.get("quiet") is True  # a follower refuses others, and the client goes on at once

    def welcomed(self, welcome: p.Welcome) -> None:
        """Handles the welcome of a new connection: streams are opened again, or wait."""
        before, self._reached = self.welcome, welcome.epoch
        self._seen_before = self.seen
        if before is not None and before.space != welcome.space:
            self._asked = self._seen_before = 0
        self._held.clear()
        super().welcomed(welcome)

    def open_stream(
        self, observation: Stream, spec: Map, items: int, size: int, number: int | None = None
    ) -> int:
        """Opens a stream once the daemon has what the client has seen; returns its number."""
        least = self._least
        waits = self._held or (least > self._reached and self._waits(spec))
        if self._is_opening or self.welcome is None or not waits:
            return super().open_stream(observation, spec, items, size, number)
        self._check_open()
        if number is None:
            number, self._next_stream = self._next_stream, self._next_stream + 1
        self._streams[number] = observation
        self._held[number] = least
        self._catch_up()
        return number

    def send_on_stream(self, packet: p.Ask | p.Peek, *, at_once: bool = False) -> None:
        """Sends an ask or a peek, unless the stream waits: it is opened with all its credit."""
        if packet.stream not in self._held:
            super().send_on_stream(packet, at_once=at_once)

    def drop_stream(self, number: int, reason: str = "") -> None:
        """Ends a stream without waiting."""
        if self._held.pop(number, None) is None:
            super().drop_stream(number, reason)
        else:
            self.take_stream(number)

    async def end_stream(self, number: int, reason: str = "") -> None:
        """Ends a stream and waits until the daemon has confirmed it, if it was opened."""
        if number in self._held:
            self.drop_stream(number)
        else:
            await super().end_stream(number, reason)

    def _catch_up(self) -> None:
        if not self._is_catching_up:
            self._is_catching_up = True
            self.start_soon(self._wait_for_epochs)

    async def _wait_for_epochs(self) -> None:
        """Asks how far the daemon is until nothing waits; opens what need wait no longer."""
        try:
            while (least := max(self._asked, *self._held.values(), 0)) > self._reached:
                wait = round(BEHIND_SECONDS * 1000)
                try:
                    asked = Map({"after": least - 1, "wait": wait})
                    answer = await self._ask_until_answered("frontier", asked, self._wait_up)
                except Refused as refusal:
                    if refusal.code != p.STORE_AWAY:
                        raise
                    self.uplink.leave(Refused("behind", str(refusal)))
                    await loop().sleep(RETRY_SECONDS)
                    continue
                epoch = answer.get("epoch") if isinstance(answer, Map) else None
                self._reached = max(self._reached, epoch if isinstance(epoch, int) else 0)
                if self._reached < least:
                    text = f"the daemon is at epoch {self._reached}, and this client has seen {least}"
                    self.uplink.leave(Refused("behind", text))
                self._open_held()
                self._notify()
        except (Broken, Closed, ProtocolError):
            pass  # what waits has got the error
        finally:
            self._is_catching_up = False
            self._notify()

    def _notify(self) -> None:
        self._came.set()
        self._came = loop().event()

    def _open_held(self) -> None:
        """Opens the streams up to the first that must wait."""
        while self._held and self._held[number := min(self._held)] <= self._reached:
            del self._held[number]
            observation = self._streams.pop(number)
            self._is_opening = True
            try:
                observation.reopen(number, resumed=True, moved=False)
            except (Refused, UsageError) as error:
                observation.fail(error)
            finally:
                self._is_opening = False


class ReadingSession(CatchingUpSession):
    """Requests and streams at any daemon of a store, over a connection apart; each of them waits.

    ``seen_by_turns`` returns what its client has seen elsewhere.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        identity: ClientIdentity,
        credentials: Credentials,
        *,
        seen_by_turns: Callable[[], int],
        reconnect: bool,
        wait: float = 0.0,
        timeout: float | None = None,
    ) -> None:
        super().__init__(addresses, identity, credentials, reconnect=reconnect, wait=wait, timeout=timeout)
        self._seen_by_turns: Final = seen_by_turns

    @property
    def _least(self) -> int:
        return max(self._seen_by_turns(), self.seen)

    def _waits(self, spec: Map) -> bool:
        return True

    async def request(self, verb: str, arguments: Map) -> Value:
        """Sends a request once the daemon has what the client has seen, and returns its answer."""
        return await self._ask_until_answered(verb, arguments, self._wait_caught_up)

    async def _wait_caught_up(self) -> None:
        """Returns when the daemon has what the client has seen, or when there will be no connection."""
        least = self._least
        while self.is_open and self._reached < least:
            self._asked = max(self._asked, least)
            self._catch_up()
            await self.patience.wait(self._came.wait)
        await self._wait_up()
