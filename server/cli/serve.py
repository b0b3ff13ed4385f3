"""The command ``dataspace serve``: a daemon in the foreground, until a signal ends it.

An orderly end waits for what actors have begun.  An actor may block the event loop that handles the signal,
or have a task that does not end when it is cancelled.  Then the daemon ends as if it were killed, which is
safe: acknowledged turns are on disk.

Always: after the first signal the process lives no longer than its time to stop.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Final

import trio

from dataspace.transport.addresses import page_of
from server.config.file import load
from server.config.model import Config
from server.config.report import check_lines
from server.config.rules import rule_facts
from server.config.settings import config_file
from server.daemon.serve import serve
from server.hosting.loading import boot_function
from server.logs import log_to_stderr
from server.upkeep.supervisor import Supervisor

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
UNFINISHED: Final = 1
"""The exit code of a daemon that did not end in good order."""


def serve_command(args: argparse.Namespace) -> int:
    """Runs until SIGINT or SIGTERM; 0 for an orderly end."""
    loaded = load(args, config_file(args))
    config = loaded.config
    if args.check:
        for space in config.all_spaces():
            rule_facts(space.rules)  # a bad one would not keep the daemon from starting, but is not meant
        for line in check_lines(loaded):
            print(line)
        return 0
    log_to_stderr(verbose=config.verbose, form=config.logging.format, level=config.logging.level)
    for each in config.actors:
        boot_function(each.run, load=not each.isolate)  # an unknown name is refused before anything starts
    for flow in config.flows:
        boot_function(flow.run, what="flow")
    supervisor = Supervisor.of(os.environ, args.ready_fd)
    with Stopping(config.stop_seconds) as stopping:
        trio.run(_serve, config, lambda: load(args, config_file(args)).config, stopping, supervisor)
    return 0


async def _serve(
    config: Config, reread: Callable[[], Config], stopping: Stopping, supervisor: Supervisor
) -> None:
    ending = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(stopping.wait, ending)
        addresses = await nursery.start(partial(_until_ended, nursery.cancel_scope, config, reread, ending))
        for address in addresses:
            is_admin = config.admin is not None and address is addresses[-1]
            said = (
                f"metrics and health at {address}"
                if is_admin
                else f"listening on {address}, data in {config.data}"
            )
            print(f"dataspace: {said}", flush=True)
        for page in filter(None, map(page_of, addresses)):
            print(f"dataspace: inspector at {page}", flush=True)
        supervisor.ready(addresses)
        nursery.start_soon(supervisor.feed)
        await ending.wait()
        supervisor.stopping()


async def _until_ended(
    scope: trio.CancelScope,
    config: Config,
    reread: Callable[[], Config],
    ending: trio.Event,
    *,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    """Runs the daemon, and then ends what waits for signals."""
    await serve(config, reread, ending=ending, task_status=task_status)
    scope.cancel()


# -- stopping ------------------------------------------------------------------------------------------


class Stopping:
    """The end of one daemon, within ``seconds`` of the first signal; as a context, which ends the watch."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._limit = threading.Timer(seconds, self._kill)
        self._limit.daemon = True
        self._begun = False

    def __enter__(self) -> Stopping:
        return self

    def __exit__(self, *_: object) -> None:
        self._limit.cancel()

    async def wait(
        self, ending: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Sets the event at the first signal; a second one ends the process at once.

        Where the event is set by others, the time to stop begins then.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._begin_when, ending)
            await self._receive(ending, task_status)

    async def _begin_when(self, ending: trio.Event) -> None:
        await ending.wait()
        self._begin()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._limit.start()

    async def _receive(self, ending: trio.Event, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(*SIGNALS) as signals:
            for number in SIGNALS:
                self._watch(number)
            task_status.started()
            async for caught in signals:
                print(f"dataspace: {signal.Signals(caught).name}, stopping", file=sys.stderr, flush=True)
                ending.set()
                return

    def _watch(self, number: signal.Signals) -> None:
        """Starts the clock with the signal itself, which the event loop may handle late."""
        receive = signal.getsignal(number)

        def begin(caught: int, frame: FrameType | None) -> None:
            self._begin()
            if callable(receive):
                receive(caught, frame)

        signal.signal(number, begin)

    def _kill(self) -> None:
        said = f"dataspace: has not stopped within {self._seconds:g} s, and ends as if it were killed\n"
        os.write(2, said.encode())
        os._exit(UNFINISHED)
