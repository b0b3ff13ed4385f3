"""Programs of coordination as users write them: an election, a store that checks tokens, settings, services.

``docs/recipes`` has each as a program of its own; here they are functions, so that tests can watch them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import dataspace
from dataspace import Lock, LockLost, Record, RemoteSpace

Register = Callable[[RemoteSpace, str, str], Awaitable[int]]

TABLE = "CREATE TABLE IF NOT EXISTS kept (name PRIMARY KEY, value, token)"
SEEN = "INSERT INTO kept VALUES (?, 0, ?) ON CONFLICT DO UPDATE SET token = max(token, excluded.token)"


async def lead(url: str, me: str, work: Callable[[Lock], Awaitable[None]], ttl: float = 10) -> None:
    """Leads whenever no other worker does, and works meanwhile; stands again when it has lost."""
    async with dataspace.connect(url, name=me) as space:
        while True:
            try:
                async with space.elect("billing", me, ttl=ttl) as election:
                    await work(election)
            except LockLost:
                pass


async def follow(url: str, note: Callable[[str, Any, int], None]) -> None:
    """Reports the leader, now and from now on."""
    async with dataspace.connect(url) as space, space.observe('leader("billing", $who)') as leaders:
        async for change in leaders:
            note(change.kind, change.who, change.epoch)


def read(database: sqlite3.Connection, name: str, token: int) -> Any:
    """Returns a number, 0 at first; from then on nothing of earlier holders is stored. One transaction."""
    with database:
        database.execute(TABLE)
        database.execute(SEEN, (name, token))
        return database.execute("SELECT value FROM kept WHERE name = ?", (name,)).fetchone()[0]


def write(database: sqlite3.Connection, name: str, value: int, token: int) -> bool:
    """Stores a number unless a later holder has been here; True if it did."""
    stored = "UPDATE kept SET value = ?, token = ? WHERE name = ? AND token <= ?"
    with database:
        return database.execute(stored, (value, token, name, token)).rowcount == 1


async def add_one(space: RemoteSpace, path: Path) -> bool:
    """Adds one to a stored number, as no other client does meanwhile."""
    async with space.lock("counter") as lock:
        database = sqlite3.connect(path)
        before = read(database, "counter", lock.token)
        lock.check()
        done = write(database, "counter", before + 1, lock.token)
        database.close()
        return done


async def configure(url: str, **settings: int) -> None:
    """States settings of billing for all; each is one fact."""
    async with dataspace.connect(url, owner="operations", client="~operator") as space:
        for name, value in settings.items():
            await space.put("config", "billing", name, value)


async def configured(url: str, note: Callable[[dict[str, int]], None]) -> None:
    """Reports each setting as it is, and as it becomes; there is a value in every epoch."""
    async with dataspace.connect(url) as space, space.observe('config("billing", $name, $value)') as settings:
        async for epoch in settings.epochs():
            if epoch.added:
                note(dict(epoch.added))  # type: ignore[arg-type]  # a name and an integer, by configure


async def serve(
    register: Register,
    url: str,
    name: str,
    address: str,
    run: Callable[[RemoteSpace], Awaitable[None]],
    lease: float = 5,
) -> None:
    """Runs as the only service of its name; it leaves the registry that many seconds after it was killed."""
    async with dataspace.connect(url, name=name, lease=lease) as space:
        await register(space, name, address)
        await run(space)


async def find(space: RemoteSpace, name: str, timeout: float = 5) -> object:
    """Returns the address of a service, once there is one."""
    pattern = Record("service", name, Record("$", "address", None, Record("_")))
    (address,) = await space.first(pattern, timeout=timeout)
    return address
