"""A daemon that wants a certificate to be trusted and a token to be shown."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from index.values.values import Map
from server.config.model import Config, ServerTls
from server.config.rights import Key, Rights
from server.daemon.serve import serve

CERTIFICATES = Path(__file__).resolve().parents[2] / "server" / "certificates"
ADMIN = "the secret of the admin"
READER = "the secret of a reader"
"""Shows that its bearer may observe ``p(_)`` and nothing else."""
WRITER = "the secret of a writer"
"""Shows that its bearer may assert ``p(_)``, as the writer ``w`` or in a lease, and observe it."""


@contextmanager
def guarded(folder: Path) -> Iterator[str]:
    """A daemon, in a thread, that speaks TLS and wants a token; its URL."""
    rights = Rights.read(Map({"observe": ("p(_)",)}))
    writes = Rights.read(Map({"assert": ("p(_)",), "observe": ("p(_)",), "durable": ("w",)}))
    keys = (Key("admin", ADMIN), Key("reader", READER, rights), Key("writer", WRITER, writes))
    tls = ServerTls(str(CERTIFICATES / "daemon.pem"), str(CERTIFICATES / "daemon.key"))
    config = Config(listen=("tls:127.0.0.1:0",), data=folder, keys=keys, tls=tls)
    scope, started, addresses = trio.CancelScope(), threading.Event(), list[str]()

    async def run() -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                addresses.extend(await nursery.start(serve, config))
                tokens.append(trio.lowlevel.current_trio_token())
                started.set()

    tokens: list[trio.lowlevel.TrioToken] = []
    thread = threading.Thread(target=trio.run, args=(run,), daemon=True)
    thread.start()
    assert started.wait(30)
    try:
        yield addresses[0].replace("tls:", "tls://", 1)
    finally:
        tokens[0].run_sync_soon(scope.cancel)
        thread.join()
