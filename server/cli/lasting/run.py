"""The commands that last: on an event loop, until they are interrupted or have no more to do.

Always: SIGTERM ends a command in good order, as Ctrl-C does.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Awaitable, Callable
from functools import partial

import trio


def run(args: argparse.Namespace) -> int:
    """Carries out a command that connects to a daemon; returns its exit code."""
    return trio.run(_until_terminated, partial(_verb(args.command), args))


def _verb(command: str) -> Callable[[argparse.Namespace], Awaitable[int]]:
    """Returns the function of a command; loaded late, as loading is most of many."""
    if command == "rule":
        from server.cli.rule import rule

        return rule
    if command == "topic":
        from server.cli.topic import topic

        return topic
    if command == "drain":
        return _drain
    if command == "demo":
        from server.cli.demo.run import demo

        return demo
    if command == "watch":
        from server.cli.lasting.watch import watch

        return watch
    if command == "top":
        from server.cli.lasting.top import top

        return top
    from server.cli.lasting import facts

    verbs: dict[str, Callable[[argparse.Namespace], Awaitable[int]]] = {
        "assert": facts.assert_,
        "observe": facts.observe,
        "send": facts.send,
        "log": facts.log,
    }
    return verbs[command]


async def _drain(args: argparse.Namespace) -> int:
    from server.cli.connecting import connect
    from server.upkeep.drain import drain

    async with connect(args) as space:
        return await drain(space, args)


async def _until_terminated(verb: Callable[[], Awaitable[int]]) -> int:
    """Returns the exit code of a command; SIGTERM ends it in good order, as Ctrl-C does."""
    code = 0
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(wait)
            code = await verb()
            nursery.cancel_scope.cancel()
    return code
