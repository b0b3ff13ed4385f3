"""Flushing in a daemon that traces: after each flush the recorder looks at what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.sessions.flushing import Flushing

if TYPE_CHECKING:
    from server.tracing.recorder import Recorder


class TracedFlushing(Flushing):
    """The queues that have something to send, and the recorder of turns."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def flush(self) -> None:
        """Writes all queues that have something, or has the task write them where they are many."""
        super().flush()
        self._recorder.flushed()

    async def _write_many(self) -> None:
        await super()._write_many()
        self._recorder.flushed()
