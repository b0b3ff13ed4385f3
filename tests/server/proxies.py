"""A proxy between clients and a daemon: cuts links after so many bytes, or falls silent like a dead route.

A route may be dead in one direction only, ``up`` from the clients or ``down`` to them: what is sent that way
is held until the direction is opened again, as TCP would send it again, or until the links are cut.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Literal

import trio

from dataspace.transport.addresses import parse_url

Way = Literal["up", "down"]
"""A direction: from the clients to the daemon, or from the daemon to them."""


class Proxy:
    """Passes bytes on between clients and a daemon; ``cuts`` are bytes after which a link is cut."""

    def __init__(self, url: str) -> None:
        self._target = parse_url(url)
        self.cuts: list[tuple[int, int]] = []
        self.links = 0
        self.url = ""
        self.swallowed = trio.Event()
        """Set when something came while it was silent."""
        self.silent = False
        """While true nothing passes, in either direction, and no link is closed."""
        self.refusing = False
        """While true links are cut as soon as they are made."""
        self.before_packet: Callable[[], Awaitable[None]] | None = None
        """Awaited before each packet is passed on, in either direction; without it bytes are passed as they
        come."""
        self._scopes: set[trio.CancelScope] = set()
        self._above: list[trio.SocketStream] = []
        self._gates: dict[Way, trio.Event] = {}

    async def move_to(self, url: str, *, refusing: bool = False) -> None:
        """Cuts all links, once something was swallowed in silence; further ones lead to another daemon."""
        with trio.fail_after(10):
            await self.swallowed.wait()
        self._target = parse_url(url)
        self.refusing = refusing
        self.silent = False
        self.cut()

    def cut(self) -> None:
        """Cuts all links."""
        for scope in self._scopes:
            scope.cancel()

    def hold(self, way: Way) -> None:
        """Holds what is sent in one direction; the other one goes on."""
        self._gates.setdefault(way, trio.Event())

    def open(self, way: Way) -> None:
        """Passes on what was held, unless its link has been cut, and all that follows."""
        self._gates.pop(way).set()

    def reset_above(self) -> None:
        """Ends the links to the daemon, which sees them end; clients notice nothing."""
        self.silent = True
        for link in self._above:
            link.socket.close()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        self.url = f"tcp://127.0.0.1:{listener.socket.getsockname()[1]}"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self._serve, [listener])
            task_status.started()

    async def _serve(self, client: trio.SocketStream) -> None:
        self.links += 1
        if self.refusing:
            await client.aclose()
            return
        up, down = self.cuts.pop(0) if self.cuts else (1 << 40, 1 << 40)
        try:
            daemon = await trio.open_tcp_stream(self._target.host, self._target.port)
        except OSError:  # the daemon is dead just now
            await client.aclose()
            return
        async with client, daemon, trio.open_nursery() as nursery:
            self._scopes.add(nursery.cancel_scope)
            self._above.append(daemon)
            nursery.start_soon(self._pass_on, "up", client, daemon, up, nursery.cancel_scope)
            nursery.start_soon(self._pass_on, "down", daemon, client, down, nursery.cancel_scope)

    async def _pass_on(
        self,
        way: Way,
        source: trio.SocketStream,
        target: trio.SocketStream,
        allowed: int,
        scope: trio.CancelScope,
    ) -> None:
        """Passes on so many bytes, then ends the link in both directions, in the middle of whatever it is."""
        held = bytearray()
        try:
            while allowed > 0 and (data := await source.receive_some(4096)):
                if self.silent:
                    self.swallowed.set()
                    await trio.sleep_forever()
                held += data
                for piece in self._pieces(held):
                    if self.before_packet is not None:
                        await self.before_packet()
                    await self._opened(way)
                    await target.send_all(piece[:allowed])
                    allowed -= len(piece)
            await self._opened(way)  # the end of a link is held like all else
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        if self.silent:
            await trio.sleep_forever()
        scope.cancel()

    def _pieces(self, held: bytearray) -> Iterator[bytes]:
        """Takes what can be passed on: whole packets where these are counted, else all."""
        if self.before_packet is None:
            yield bytes(held)
            held.clear()
            return
        while len(held) >= 4 and len(held) >= (size := 4 + int.from_bytes(held[:4])):
            packet = bytes(held[:size])
            del held[:size]
            yield packet

    async def _opened(self, way: Way) -> None:
        """Waits until a direction is not held."""
        while (gate := self._gates.get(way)) is not None:
            await gate.wait()
