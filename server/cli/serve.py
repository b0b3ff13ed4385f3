"""The command ``dataspace serve``: a daemon in the foreground, until a signal ends it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial

import trio

from dataspace.transport.addresses import page_of
from server.cli.stopping import Stopping
from server.config.file import load
from server.config.model import Config
from server.config.report import check_lines
from server.config.rules import rule_facts
from server.config.settings import config_file
from server.daemon.serve import serve
from server.hosting.loading import boot_function
from server.logs import log_to_stderr
from server.upkeep.supervisor import Supervisor


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
            print(f"dataspace: listening on {address}, data in {config.data}", flush=True)
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
