"""The process of one isolated actor: a program that only a daemon starts.

It gets a connected socket as an inherited descriptor, its actor's settings on standard input, and reports on
its former standard output; its prints go to the daemon's standard error.

Always: it ends with the daemon, however that ends and whatever the actor does: by the kernel on Linux, else
by a thread that waits for the end of the standard input.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

import trio

from dataspace.actors.engine.actors import Actor, Handler
from dataspace.actors.engine.engine import Engine
from dataspace.client.connect import connect
from dataspace.codec import pack, unpack_own
from dataspace.errors import ActorCrashed
from dataspace.running.actors import Watchdog
from dataspace.running.remote import RemoteEngine, act
from dataspace.wire.frames import HEAD, frame
from index.values.values import Map, Value
from server.hosting.loading import boot_function, traced
from server.logs import log_to_stderr

REPORT_SECONDS: Final = 0.25
LEAST_SECONDS: Final = 0.05
FIRST: Final = 1
ORPHANED: Final = 70
PR_SET_PDEATHSIG: Final = 1


def main() -> int:
    """Runs the actor; returns 0 when it has ended in good order, 1 when it has crashed."""
    daemon, descriptor = map(int, sys.argv[1:])
    _die_with_daemon(daemon)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the daemon, which ends this process itself
    order = _read_order(sys.stdin.buffer)
    reports = _take_over_output()
    threading.Thread(target=_wait_orphaned, name="lifeline", daemon=True).start()
    form, level = str(order["log_format"]), str(order["log_level"])
    log_to_stderr(verbose=order["verbose"] is True, form=form, level=level)
    try:
        boot = boot_function(str(order["run"]))
        trio.run(_run, descriptor, order, boot, reports)
    except ActorCrashed as crash:  # it has been logged
        reports(("crash", str(crash)[:1000]))
        return 1
    except Exception as error:  # noqa: BLE001  # a fence around the process: the daemon gets the reason
        traceback.print_exc()
        reports(("crash", f"{type(error).__name__}: {error}"[:1000]))
        return 1
    return 0


async def _run(descriptor: int, order: Map, boot: Handler, reports: Callable[[Value], None]) -> None:
    name, arguments = str(order["name"]), order["arguments"]
    assert isinstance(arguments, tuple)  # by the guardian
    async with connect(
        f"fd:{descriptor}",
        name=name,
        space=str(order["space"]),
        heartbeat=math.inf,  # this connection stays alive while the actor may hang
        reconnect=False,
        token="",
    ) as remote:
        signs = Signs(order)
        trio.lowlevel.spawn_system_task(signs.give)
        with ExitStack() as stack:
            await act(
                remote,
                boot,
                *arguments,
                name=name,
                prepare=lambda engine: _watch(engine, order, stack, signs, reports),
            )


class Signs:
    """Signs of life: a counter that the event loop of this process increments a few times a second."""

    def __init__(self, order: Map) -> None:
        seconds = order["signs"]
        assert isinstance(seconds, float)  # by the guardian
        self.seconds = max(LEAST_SECONDS, min(REPORT_SECONDS, seconds))
        self.count = 1

    async def give(self) -> None:
        """Counts until cancelled, as long as the event loop is not blocked."""
        while True:
            self.count += 1
            await trio.sleep(self.seconds)


def _watch(
    engine: RemoteEngine, order: Map, stack: ExitStack, signs: Signs, reports: Callable[[Value], None]
) -> None:
    """Watches the engine, and reports on it, for as long as this process lives."""
    term = order["term"]
    assert isinstance(term, int)  # by the guardian
    engine.there.term = term
    engine.fence = (BaseException,)  # as in the daemon: an actor that calls sys.exit has crashed
    engine.on_end = lambda actor: _note_end(actor, reports)
    stall, trace = order["stall"], order["trace"]
    assert isinstance(stall, float)  # by the guardian
    stack.enter_context(
        traced(engine, Path(trace) if isinstance(trace, str) else None, origin=f"{os.getpid()}.")
    )
    watchdog = stack.enter_context(Watchdog(engine, limit=stall))
    what = (engine, watchdog, signs, reports)
    threading.Thread(target=_report, args=what, name="reports", daemon=True).start()


def _note_end(actor: Actor, reports: Callable[[Value], None]) -> None:
    """Reports the crash of an actor with which the process does not end."""
    if actor.crash is not None and actor.number != FIRST:
        reports(("child", str(actor.crash)[:1000]))


def _report(engine: Engine, watchdog: Watchdog, signs: Signs, reports: Callable[[Value], None]) -> None:
    """Reports changes a few times a second, also of an actor that does not yield."""
    reported: tuple[int, ...] = ()
    while True:
        actors = list(engine.actors.values())
        facets = sum(actor.facets for actor in actors)
        stalls, stuck = sum(watchdog.stalls.values()), watchdog.stuck is not None
        counts = (signs.count, len(actors), engine.turns, facets, stalls, stuck)
        if counts != reported:
            reports(("counts", *counts))
            reported = counts
        time.sleep(signs.seconds)


# -- the process -------------------------------------------------------------------------------------


def _die_with_daemon(daemon: int) -> None:
    """Requests from the kernel, where it can, to end this process with the daemon, which may have ended
    already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != daemon:
            os._exit(ORPHANED)


def _read_order(file: IO[bytes]) -> Map:
    """Returns what to run; ends the process if the daemon ended before it sent that."""
    head = file.read(HEAD)
    body = file.read(int.from_bytes(head, "big")) if len(head) == HEAD else b""
    if not body:
        os._exit(ORPHANED)
    order = unpack_own(body)
    assert isinstance(order, Map)  # by the guardian
    return order


def _wait_orphaned() -> None:
    """Ends this process when the standard input ends."""
    while os.read(0, 4096):
        pass
    os._exit(ORPHANED)


def _take_over_output() -> Callable[[Value], None]:
    """Keeps the standard output for reports, and redirects what is printed to the standard error."""
    descriptor = os.dup(1)
    os.dup2(2, 1)
    lock = threading.Lock()

    def report(what: Value) -> None:
        with lock:
            try:
                os.write(
                    descriptor, frame(pack(what))
                )  # in one piece: it is shorter than the buffer of a pipe
            except OSError:
                os._exit(ORPHANED)

    return report


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # threads that an actor left running do not keep the process
