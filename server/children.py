"""Child processes of the daemon: each is started again whenever it ends, and ended in good order.

For followers and for the process that archives.  A hosted actor's process is not kept here: its supervisor
starts it again, and what runs code of a user is killed at once (``server/hosting/guardian.py``).

Always: no process outlives the block that runs it, however that ends.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import trio

from server.pauses import Pauses

logger = logging.getLogger("dataspace")


async def keep_running(
    name: str, run: Callable[[], Awaitable[trio.Process]], pauses: Pauses, *, event: str
) -> NoReturn:
    """Runs a process again and again, until cancelled: ``run`` starts it, and returns it once it has ended.

    Each end, and each failed start, is a warning in the log under the name ``event``.
    """
    while True:
        began = trio.current_time()
        try:
            process = await run()
            ended = f"[{process.pid}] {ending(await process.wait())}"
        except OSError as error:  # such as no descriptor, process or memory left: that may pass
            ended = f" cannot be started: {error.strerror}"
        pause = pauses.next(lasted=trio.current_time() - began)
        extra = {"event": event, "about": name}  # so that the end of one hides no end of another
        logger.warning("%s%s; it is started again in %g s", name, ended, pause, extra=extra)
        await trio.sleep(pause)


@asynccontextmanager
async def running(command: Sequence[str], patience: float, **options: Any) -> AsyncIterator[trio.Process]:
    """Starts a process, and yields it; raises ``OSError`` if it cannot be started.

    At the end of the block a process that still runs is terminated, and killed after ``patience`` seconds.
    ``options`` are those of ``trio.lowlevel.open_process``.
    """
    # No checkpoint lies between the start, which no cancellation interrupts, and the block: a cancellation
    # there would leave a process that nothing ends.
    process = await trio.lowlevel.open_process(command, **options)
    try:
        yield process
    finally:
        with trio.CancelScope(shield=True):
            process.terminate()
            with trio.move_on_after(patience):
                await process.wait()
            process.kill()
            await process.wait()  # else it stays as a zombie


def ending(code: int) -> str:
    """Returns how a process has ended, in words.

    >>> ending(1), ending(-9), ending(-35)
    ('ended with exit code 1', 'was ended by SIGKILL', 'was ended by signal 35')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal, which has no name
        return f"was ended by signal {-code}"
