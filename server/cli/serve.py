"""The command ``dataspace serve``: a daemon in the foreground, until a signal ends it."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import trio

from server.cli.stopping import Stopping
from server.config.file import load
from server.config.model import Config
from server.config.report import check_lines
from server.config.rules import rule_facts
from server.config.settings import config_file
from server.daemon.serve import serve
from server.hosting.loading import boot_function
from server.logs import log_to_stderr


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
    with Stopping(config.stop_seconds) as stopping:
        trio.run(_serve, config, lambda: load(args, config_file(args)).config, stopping)
    return 0


async def _serve(config: Config, reread: Callable[[], Config], stopping: Stopping) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(stopping.wait, nursery.cancel_scope)
        addresses = await nursery.start(serve, config, reread)
        for address in addresses:
            print(f"dataspace: listening on {address}, data in {config.data}", flush=True)
