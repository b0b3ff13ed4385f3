"""A rolling update of the manifests of a cluster, as Kubernetes does it: clients see no error.

Processes stand for containers, a proxy for the service.  What is run, asked and waited for, and for how long,
is read out of the manifest; only the pauses between two probes are shorter.
"""

from __future__ import annotations

import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
import trio

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
pytest.importorskip("prometheus_client", reason="the extra `metrics` is not installed")
pytest.importorskip("yaml", reason="PyYAML is not installed (`make venv`)")

import dataspace
from dataspace import Record
from tests.server.upkeep.test_kubernetes import CERTIFICATES, DAEMON, NAMES, POD, STATEFUL, PodDaemon

pytestmark = pytest.mark.slow

SOON: Final = 240
GRACE: Final[int] = POD["terminationGracePeriodSeconds"]
PROBE_SECONDS: Final = 0.2
SHIFT: Final = 20
"""Turns of the client between two pods."""


class Kubelet:
    """The pods of the set: which of them the service sends clients to, and how one ends and begins."""

    def __init__(self, pods: dict[str, PodDaemon]) -> None:
        self.pods: Final = pods
        self.ready: Final[set[str]] = set()
        self.killed: Final[list[str]] = []

    async def serve(self, client: trio.SocketStream) -> None:
        """Connects a client of the service to a pod that is ready, as kube-proxy does."""
        async with client:
            if not self.ready:
                return
            port = self.pods[random.choice(sorted(self.ready))].secure
            try:
                pod = await trio.open_tcp_stream("127.0.0.1", port)
            except OSError:
                return  # it has just ended
            async with pod, trio.open_nursery() as both:
                both.start_soon(_pass_on, client, pod, both.cancel_scope)
                both.start_soon(_pass_on, pod, client, both.cancel_scope)

    async def begin(self, name: str) -> None:
        """Starts a pod, and returns once it is ready."""
        pod = self.pods[name]
        await trio.to_thread.run_sync(pod.process.start)
        startup = DAEMON["startupProbe"]
        with trio.fail_after(startup["periodSeconds"] * startup["failureThreshold"]):
            await self._probed(pod, startup)
            await self._probed(pod, DAEMON["readinessProbe"])
        self.ready.add(name)

    async def _probed(self, pod: PodDaemon, probe: dict[str, Any]) -> None:
        path = probe["httpGet"]["path"]
        while await trio.to_thread.run_sync(pod.probe, path) != 200:  # noqa: ASYNC110  # another process
            await trio.sleep(PROBE_SECONDS)

    async def end(self, name: str) -> None:
        """Ends a pod: the service knows it no longer, then come preStop, SIGTERM, and at last SIGKILL."""
        pod = self.pods[name]
        self.ready.discard(name)
        with trio.move_on_after(GRACE):
            ended = partial(trio.to_thread.run_sync, pod.process.process.wait, abandon_on_cancel=True)
            stopping = pod.popen(DAEMON["lifecycle"]["preStop"]["exec"]["command"])
            async with trio.open_nursery() as nursery:

                async def hook() -> None:
                    await trio.to_thread.run_sync(stopping.wait, abandon_on_cancel=True)
                    pod.process.process.send_signal(signal.SIGTERM)

                nursery.start_soon(hook)
                await ended()
                nursery.cancel_scope.cancel()
            stopping.kill()  # it is in the container, which has ended
        if pod.process.process.poll() is None:
            self.killed.append(name)
            pod.process.process.kill()
        assert pod.process.wait() == 0, pod.process.errors
        assert "requested a drain" in pod.process.errors, "preStop drains, and no signal is needed"

    async def update(self, name: str) -> None:
        """Replaces a pod."""
        await self.end(name)
        await self.begin(name)


async def _pass_on(source: trio.SocketStream, target: trio.SocketStream, scope: trio.CancelScope) -> None:
    try:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for piece in source:
                await target.send_all(piece)
    finally:
        scope.cancel()


@asynccontextmanager
async def set_of_pods(store: str, folder: Path) -> AsyncIterator[tuple[Kubelet, str]]:
    """The pods of the manifest, and the address of their service."""
    assert STATEFUL["replicas"] == len(NAMES)
    kubelet = Kubelet({name: PodDaemon(name, store, folder) for name in NAMES})
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    service = f"tls://localhost:{listeners[0].socket.getsockname()[1]}"
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, kubelet.serve, listeners)
            async with trio.open_nursery() as starting:
                for name in NAMES:  # podManagementPolicy: Parallel
                    starting.start_soon(kubelet.begin, name)
            yield kubelet, service
            nursery.cancel_scope.cancel()
    finally:
        for each in kubelet.pods.values():
            if each.process.process.poll() is None:
                each.process.stop()


async def test_a_rolling_update_is_no_error_to_any_client(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATASPACE_TLS_CA", str(CERTIFICATES / "ca.pem"))
    counted = 0

    async def write(url: str) -> None:
        nonlocal counted
        async with dataspace.connect(url, grace=60, name="writer") as space:
            await space.assert_(Record("here", "writer"))
            for n in count(1):
                await space.send(Record("tick", n))
                counted = n

    shown: list[object] = []
    blinks: list[str] = []

    async def read(url: str) -> None:
        async with dataspace.connect(url, read="any") as space:
            async for change in space.observe("tick($n)", after=0, quiet=True):
                shown.extend(change.captures)

    async def watch(url: str) -> None:
        async with dataspace.connect(url, read="any") as space:
            async for change in space.observe("here($who)", quiet=True):
                blinks.extend([change.kind] if change.captures else [])

    async def further() -> None:
        enough = counted + SHIFT
        while counted < enough or shown[-1:] < [enough]:  # noqa: ASYNC110  # what other tasks count
            await trio.sleep(0.02)

    with trio.fail_after(SOON):
        async with set_of_pods(postgres_url, tmp_path) as (kubelet, service), trio.open_nursery() as nursery:
            for each in (read, watch, write):
                nursery.start_soon(each, service)
            await further()
            for name in sorted(NAMES, reverse=True):  # a set is updated from the highest ordinal down
                await kubelet.update(name)
                await further()
            nursery.cancel_scope.cancel()
    assert kubelet.killed == [] and kubelet.ready == {*NAMES}
    assert shown == [*range(1, len(shown) + 1)] and blinks == ["+"]
