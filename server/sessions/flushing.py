"""Flushing: the send queues of all connections that have something, and when they are written.

Mostly a turn concerns a few connections, and these are written when the bundle of work is done that concerned
them.  But a turn that thousands observe would be thousands of calls of the system in one step.  So many are
written for one slice at once, and then by a task of their own, a slice at a time; what happens before a
queue's turn comes leaves with it, so that a thousand turns for a thousand observers are far less than a
million writes.  After a pass the task rests for as long as it took, if more waits already: others get half of
the time at least, and their changes leave in fewer writes.  A change that comes later is written at once.

Always: each touched queue is written, in one flush in the order of touching; a few are written at once, even
while many wait for the task; if no task runs, as before the start and at the end, so are many.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

import trio

AT_ONCE: Final = 64
"""Queues that are written in one step, in less than a millisecond."""

SLICE_SECONDS: Final = 0.002
"""Seconds after which the task lets others run."""

PASSES: Final = 8
"""Passes of the loop in which others may run before the task looks whether more waits: with 2 a turn with 100
observers cost a tenth more under load, since it often found nothing."""

REST_SECONDS: Final = 0.005
"""Seconds that the task rests at most between two passes."""


class Queue(Protocol):
    """The send queue of one connection."""

    def flush(self) -> None:
        """Writes what the socket takes."""


class Flushing:
    """The queues that have something to send."""

    def __init__(
        self,
        flushed: Callable[[], None] | None = None,
        *,
        slice_seconds: float = SLICE_SECONDS,
        rest_seconds: float = REST_SECONDS,
    ) -> None:
        """``flushed`` is called after queues were written."""
        self._flushed = flushed
        self._slice_seconds = slice_seconds
        self._rest_seconds = rest_seconds
        self._touched: list[Queue] = []
        self._many: list[Queue] = []
        self._due = trio.Event()
        self._is_running = False
        self._is_idle = False
        """True while the task waits, and rests no more."""
        self._pass: list[Queue] = []
        """The queues that are yet to be written in this pass, and the seconds of its first slice."""
        self._took = 0.0
        self._has_begun = False
        """True if a pass has begun before the task runs."""

    def touch(self, queue: Queue) -> None:
        """Includes a queue in the next flush."""
        self._touched.append(queue)

    def flush(self) -> None:
        """Writes all queues that have something, or has the task write them where they are many."""
        while self._touched:
            touched, self._touched = self._touched, []
            if len(touched) > AT_ONCE and self._is_running:
                self._due.set()
                if self._is_idle:
                    self._is_idle, self._has_begun = False, True
                    self._pass = touched
                    self._took = self._write_slice()
                else:
                    self._many += touched
                continue
            for queue in touched:
                queue.flush()
        if self._flushed is not None:
            self._flushed()

    async def run(self) -> None:
        """Writes queues where they are many, until cancelled; then writes what is left."""
        self._is_running = True
        try:
            while True:
                if not self._many:
                    self._is_idle, self._due = True, trio.Event()
                    await self._due.wait()
                took, self._took = self._took, 0.0
                if not self._has_begun:
                    self._pass += self._many
                    self._many = []
                self._has_begun = False
                while self._pass:
                    took += self._write_slice()
                    await trio.lowlevel.checkpoint()
                for _ in range(PASSES):
                    await trio.lowlevel.checkpoint()
                if self._many:
                    await trio.sleep(min(took, self._rest_seconds))
        finally:
            self._is_running = False
            self._touched[:0] = [*self._pass, *self._many]
            self._pass, self._many = [], []
            self.flush()

    def _write_slice(self) -> float:
        """Writes queues of this pass, for as long as one slice; returns the seconds that it took."""
        touched, written = self._pass, 0
        began = now = perf_counter()
        until = began + self._slice_seconds
        try:
            for queue in touched:
                written += 1
                queue.flush()
                now = perf_counter()
                if now > until:
                    break
        finally:
            del touched[:written]
        if self._flushed is not None:
            self._flushed()
        return now - began


# -- held -------------------------------------------------------------------------------------------


SURE_SECONDS: Final = 0.02
"""How often it looks whether the daemon is sure again."""


class HeldPeer(Protocol):
    """A client whose packets may be held."""

    trusted: bool
    is_here: bool

    @property
    def is_led(self) -> bool:
        """True if this daemon leads the space of the client."""

    def dismiss(self, code: str, text: str, url: str = "") -> None:
        """Ends the connection, with the reason."""

    def resend(self) -> None:
        """Sends what was held."""


class Surety:
    """Holds what clients are sent while another daemon may lead.

    Answers, refusals, welcomes and the states with which streams begin depend on the state of a leader.  If
    it is not sure to lead, that state may be old.  All packets then wait in the queues of the connections, in
    order, until the daemon is sure again.  A client that has waited for a lease is sent away, since another
    daemon may serve it.  A client that asks about this daemon itself (``here``) is answered, and so are
    followers, which read the log, and hosted actors, which go by memory.

    Always: a packet leaves a queue only after the daemon was sure to lead with the state of the packet.
    """

    def __init__(self, is_sure: Callable[[], bool], patience: float) -> None:
        """``patience`` is the seconds after which a client is sent away."""
        self.is_sure: Final = is_sure
        self._patience: Final = patience
        self._held: dict[HeldPeer, float] = {}
        self._has_held = trio.Event()

    def holds(self, peer: HeldPeer) -> bool:
        """Returns whether nothing may be sent to a client now; it is sent once that is over."""
        if self.is_sure() or peer.is_here or peer.trusted or not peer.is_led:
            return False
        self._held.setdefault(peer, trio.current_time())
        self._has_held.set()
        return True

    async def run(self) -> None:
        """Sends what was held, or sends clients away that have waited for too long, until cancelled."""
        while True:
            await self._has_held.wait()  # a daemon that is sure wakes for nothing
            await trio.sleep(SURE_SECONDS)
            if self.is_sure():
                held, self._held, self._has_held = self._held, {}, trio.Event()
                for peer in held:
                    peer.resend()
                continue
            for peer, since in list(self._held.items()):
                if trio.current_time() - since > self._patience:
                    del self._held[peer]
                    peer.dismiss("moved", "another daemon may lead by now: connect again")
