"""The group commit of a daemon that traces: notes when an epoch was queued, written and on disk.

Always: an entry submitted without a trace goes the way of the log, but for the look whether there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any

from relay.log.writer import GroupCommit
from server.tracing.traces import TRACED, Trace

if TYPE_CHECKING:
    from dataspace.kernel.epochs import Epoch
    from dataspace.kernel.interests import Interests
    from relay.log.log import Log
    from server.tracing.recorder import Recorder


class TracedCommits(GroupCommit):
    """Feeds one log, and tells a recorder of the epochs of traced turns."""

    def __init__(self, log: Log, *, recorder: Recorder, **options: Any) -> None:
        """The options are the same as for ``GroupCommit``."""
        super().__init__(log, **options)
        self.interests: Interests | None = None
        """The interests of the space, once it is made."""
        self._recorder = recorder
        self._group_began = self._group_size = 0

    def submit(self, epoch: Epoch, on_durable: Callable[[Epoch], None] | None = None) -> None:
        """Queues the next epoch, as ``GroupCommit`` does."""
        trace = TRACED.get()
        if trace is None or epoch.client is None or self.interests is None:  # the last at the start
            super().submit(epoch, on_durable)
            return
        super().submit(epoch, partial(self._durable, trace, on_durable))
        trace.queued(epoch.number, self.interests.touched)
        self._recorder.follow(trace)

    async def _on_disk(self, write: Callable[[Sequence[Any]], None], group: Sequence[Any]) -> bool:
        self._group_began, self._group_size = time_ns(), len(group)
        return await super()._on_disk(write, group)

    def _durable(self, trace: Trace, on_durable: Callable[[Epoch], None] | None, epoch: Epoch) -> None:
        trace.durable = time_ns()
        trace.group, trace.group_began = self._group_size, self._group_began
        if on_durable is not None:
            on_durable(epoch)
            self._recorder.answered(trace)
