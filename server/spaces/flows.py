"""Flows named in the configuration, which run in the turns of a space.

Each is a ``module:function`` that makes a flow (``dataspace.rules``) of its arguments.  It is attached before
the first client is served, so that its facts exist from the start, like derived facts.  Flows that read
streams or clocks run in tasks beside the sessions.

Always: a flow that cannot be made or ordered in strata ends the start of the daemon, with its name; a later
error in a flow or in a stream of it ends that flow alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import trio

from dataspace.errors import UsageError
from dataspace.flows.flows import Flow
from dataspace.flows.inputs import Interval, Streamed
from dataspace.kernel.space import Space
from dataspace.running.flows import pump

logger = logging.getLogger("dataspace")


class HostedFlows:
    """The flows of one space, by their titles."""

    def __init__(self, flows: Mapping[str, Flow]) -> None:
        self._flows = flows

    def attach(self, space: Space) -> None:
        """Runs the flows in the turns of a space, from the next one on."""
        for name, flow in self._flows.items():
            try:
                space.rules.attach(name, flow)
            except UsageError as error:
                raise UsageError(f"flow {name}: {error}") from None

    async def run(self, turn: Callable[[], object]) -> None:
        """Reads their streams and clocks until cancelled; ``turn`` makes a turn of the space."""
        async with trio.open_nursery() as nursery:
            for name, flow in self._flows.items():
                if any(isinstance(each, Streamed | Interval) for each in flow.operators.values()):
                    nursery.start_soon(_pump, name, flow, turn)


async def _pump(name: str, flow: Flow, turn: Callable[[], object]) -> None:
    try:
        await pump(flow, turn=turn)
    except Exception:  # a flow's fence: a stream that fails must not end the daemon
        logger.exception("flow %s is fed no more", name)
