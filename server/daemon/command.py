"""The command ``dataspace serve``: a daemon in the foreground, until a signal ends it.

An orderly end waits for what actors have begun.  An actor may block the event loop that handles the signal,
or have a task that does not end when it is cancelled.  Then the daemon ends as if it were killed, which is
safe: acknowledged turns are on disk.

A supervisor that started the process is told when the daemon is ready, that it is alive, and when it ends.
The followers that a daemon starts (``server/cluster/directory/readers.py``) run this command too.

Always: after the first signal the process lives no longer than its time to stop.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import closing
from functools import partial
from types import FrameType
from typing import Final, Self

import trio

from dataspace.errors import UsageError
from dataspace.transport.addresses import page_of
from server.cluster.directory.readers import (
    FollowerProcesses,
    NamedLines,
    config_of_reader,
    follow_daemon,
    inheritance,
)
from server.config.file import load
from server.config.functions import load_functions
from server.config.model import Config
from server.config.report import check_lines
from server.config.rules import rule_facts
from server.config.settings import config_file
from server.daemon.serve import serve
from server.hosting.loading import boot_function
from server.logs import log_to_stderr

logger = logging.getLogger("dataspace")

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
UNFINISHED: Final = 1
"""The exit code of a daemon that did not end in good order."""

VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""The variables of the environment by which systemd says where to report."""


def serve_command(args: argparse.Namespace) -> int:
    """Runs until SIGINT or SIGTERM; 0 for an orderly end."""
    inherited = inheritance(os.environ)
    if inherited is not None:
        sys.stderr = NamedLines(sys.stderr, inherited.number)
    loaded = load(args, config_file(args))
    config = config_of_reader(loaded.config, inherited)
    if args.check:
        functions = load_functions(config.functions)
        for space in config.all_spaces():
            rule_facts(
                space.rules, functions
            )  # a bad one would not keep the daemon from starting, but is not meant
        for each in config.actors:
            boot_function(each.run, load=True)
        for flow in config.flows:
            boot_function(flow.run, what="flow")
        for line in check_lines(loaded):
            print(line)
        return 0
    if inherited is not None:
        follow_daemon(inherited, config.stop_seconds)
    log_to_stderr(verbose=config.verbose, form=config.logging.format, level=config.logging.level)
    for each in config.actors:
        boot_function(each.run, load=not each.isolate)  # an unknown name is refused before anything starts
    for flow in config.flows:
        boot_function(flow.run, what="flow")
    supervisor = Supervisor() if inherited is not None else Supervisor.of(os.environ, args.ready_fd)
    readers = FollowerProcesses(config)

    def reread() -> Config:
        readers.hang_up()
        return config_of_reader(load(args, config_file(args)).config, inherited)

    with Stopping(config.stop_seconds) as stopping:
        trio.run(_serve, config, reread, stopping, supervisor, readers)
    return 0


async def _serve(
    config: Config,
    reread: Callable[[], Config],
    stopping: Stopping,
    supervisor: Supervisor,
    readers: FollowerProcesses,
) -> None:
    ending = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(stopping.wait, ending)
        with closing(readers):
            await readers.open()
            await _run(config, reread, supervisor, readers, ending)
        nursery.cancel_scope.cancel()


async def _run(
    config: Config,
    reread: Callable[[], Config],
    supervisor: Supervisor,
    readers: FollowerProcesses,
    ending: trio.Event,
) -> None:
    """Runs the daemon and its followers until the event."""
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(partial(_until_ended, nursery.cancel_scope, config, reread, ending))
        if not addresses:  # it was to end before it listened
            return
        for address in addresses:
            is_admin = config.admin is not None and address is addresses[-1]
            notice = (
                f"metrics and health at {address}"
                if is_admin
                else f"listening on {address}, data in {config.data}"
            )
            print(f"dataspace: {notice}", flush=True)
        for page in filter(None, map(page_of, addresses)):
            print(f"dataspace: inspector at {page}", flush=True)
        nursery.start_soon(readers.run, ending)
        nursery.start_soon(_announce, readers)
        supervisor.ready(addresses)
        nursery.start_soon(supervisor.feed)
        await ending.wait()
        supervisor.stopping()


async def _announce(readers: FollowerProcesses) -> None:
    await readers.wait_accepting()
    for address in readers.addresses:
        print(f"dataspace: {readers.count} followers at {address}", flush=True)


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


# -- the supervisor ----------------------------------------------------------------------------------


class Supervisor:
    """Where a daemon reports what it does; ``watchdog`` is in seconds, 0 for none.

    systemd's protocol is a datagram to ``$NOTIFY_SOCKET`` (sd_notify(3)), so no library is needed.  Other
    supervisors get a line on a descriptor that they named, as s6 has it.  The watchdog is fed from the event
    loop: a loop that stands still feeds nothing, and the daemon is started again.

    Always: without a supervisor nothing is sent; a supervisor that does not listen any more ends nothing;
    child processes of the daemon do not inherit the variables.
    """

    def __init__(self, address: str = "", watchdog: float = 0.0, ready_fd: int | None = None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog = watchdog
        self._ready_fd = ready_fd

    @classmethod
    def of(cls, environment: MutableMapping[str, str], ready_fd: int | None = None) -> Self:
        """Returns the supervisor of this process, and removes its variables; ``UsageError`` for a closed
        descriptor."""
        address, every, process = (environment.pop(name, "") for name in VARIABLES)
        meant = process in ("", str(os.getpid()))
        if ready_fd is not None:
            _check(ready_fd)
        return cls(address, int(every) / 1e6 if every.isdecimal() and meant else 0.0, ready_fd)

    def ready(self, addresses: Sequence[str]) -> None:
        """Reports that the daemon listens: on these addresses, one per line for ``--ready-fd``."""
        self._notify(f"READY=1\nSTATUS=listening on {', '.join(addresses)}")
        descriptor, self._ready_fd = self._ready_fd, None
        if descriptor is None:
            return
        try:
            with os.fdopen(descriptor, "w") as file:
                file.writelines(f"{address}\n" for address in addresses)
        except OSError as error:
            logger.warning("cannot report on descriptor %d that it is ready: %s", descriptor, error.strerror)

    def stopping(self) -> None:
        """Reports that the daemon ends."""
        self._notify("STOPPING=1\nSTATUS=saying goodbye to clients")

    async def feed(self) -> None:
        """Feeds the watchdog twice within its time, until cancelled."""
        while self._watchdog:
            self._notify("WATCHDOG=1")
            await trio.sleep(self._watchdog / 2)

    def _notify(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sending:
                sending.sendto(state.encode(), self._address)
        except OSError as error:
            logger.warning("cannot notify the supervisor: %s", error.strerror)


def _check(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        raise UsageError(
            f"--ready-fd {descriptor} is no open descriptor; open it for the daemon, such as with "
            f"{descriptor}>FILE in a shell"
        ) from None
