"""The Python client follows the sessions of the conformance kit under asyncio."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import anyio
import pytest
import trio

from tests.conformance import driving
from tests.conformance.test_sessions import NAMES, follow
from tests.dataspace.client.on_asyncio.runs import ANYIO, Host


class Bridge:
    """Drives a client in the asyncio loop, for the player of the sessions, which runs under trio."""

    def __init__(self, client: driving.PythonClient) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self.forget = client.forget

    async def do(self, command: driving.Command) -> None:
        await self._there(self._client.do(command))

    async def event(self, of: str) -> driving.Event:
        event: driving.Event = await self._there(self._client.event(of))
        return event

    async def _there(self, going: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(going, self._loop)
        return await trio.to_thread.run_sync(future.result, abandon_on_cancel=True)


@pytest.mark.slow
def test_the_sessions_are_followed(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driving, "trio", ANYIO)

    async def main() -> None:
        for name in NAMES:
            async with anyio.create_task_group() as tasks:
                bridge = Bridge(driving.PythonClient(tasks))  # type: ignore[arg-type]  # a nursery, there
                await asyncio.to_thread(host.run, partial(follow, bridge, name))
                tasks.cancel_scope.cancel()

    asyncio.run(main())
