"""Old turns: the answers to turns that came before, off the path of the session's packets.

A client that lost its connection sends the turns without an answer again.  The latest ones are remembered;
for older ones the log must be read, which may take long where it is large.  One task of the connection does
that, for all waiting turns at once, while the session goes on.

Always: an answer says applied (with its epoch, which is on disk), not applied, or not known any more; what
waits is bounded, and a client that sends more waits.
"""

from __future__ import annotations

from typing import Final

import trio

from dataspace.errors import DataspaceError
from dataspace.wire import packets as p
from relay.store.errors import LogFailed
from server.connections.lingering import goodbye_of
from server.owners.turn_numbers import refusal
from server.sessions.peer import Peer

MOST: Final = 8192
"""Old turns of one connection that wait for an answer."""


class OldTurns:
    """The old turns of one connection."""

    def __init__(self, connection: Peer) -> None:
        self._connection = connection
        self._wanted: set[int] = set()
        self._running = False
        self._room = trio.Event()

    async def answer(self, sequence: int) -> None:
        """Answers a turn that is not higher than the highest applied, at once or later.

        Waits only while ``MOST`` others wait.
        """
        connection = self._connection
        epoch = connection.own.client.epoch_of(sequence)
        if epoch is not None and epoch <= connection.home.commits.durable:
            self._say(sequence, epoch)
            return
        while len(self._wanted) >= MOST:
            self._room = trio.Event()
            await self._room.wait()
        self._wanted.add(sequence)
        if not self._running:
            self._running = True
            connection.start(self._run)

    async def _run(self) -> None:
        connection = self._connection
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, set()
                self._room.set()
                found = await connection.home.find_turns(connection.own.client, wanted)
                for sequence in sorted(wanted):
                    epoch = found.get(sequence)
                    await connection.home.commits.wait_durable(epoch or 0)
                    self._say(sequence, epoch)
                connection.home.flush()
        except DataspaceError as error:  # such as a disk that has failed
            connection.lost = isinstance(error, LogFailed)
            connection.dismiss(goodbye_of(error), str(error))
        finally:
            self._running = False

    def _say(self, sequence: int, epoch: int | None) -> None:
        if epoch:
            self._connection.say(p.Accepted(sequence, (epoch,)))
        else:
            refused = refusal(sequence, epoch)
            self._connection.say(p.Refusal(sequence, refused.code, refused.text))
