"""Requests of bulk writers: stage, prepare, discard, publish."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from dataspace.errors import Refused
from dataspace.kernel.expectations import are_expectations
from dataspace.wire.arguments import key, number, text, texts
from index.values.values import Map, Value
from server.publication.publish import prepare, publish, stage, stage_packed
from server.sessions.peer import Peer


async def _stage(peer: Peer, arguments: Map) -> Value:
    """Stores operations under a key until they are published or discarded."""
    rows = arguments.get("rows")
    if isinstance(rows, bytes):
        return await stage_packed(peer.home, texts(arguments, "key"), rows, peer.bearer, peer.account)
    operations = arguments.get("operations")
    if not isinstance(operations, tuple):
        raise Refused("bad-request", "operations must be an array")
    await stage(peer.home, texts(arguments, "key"), operations, peer.bearer, peer.account)
    return len(operations)


async def _prepare(peer: Peer, arguments: Map) -> Value:
    """Reads operations ahead of their publication; may be left out."""
    rows = arguments.get("rows")
    if not isinstance(rows, bytes):
        raise Refused("bad-request", "rows must be binary")
    return await prepare(peer.home, rows, peer.bearer)


async def _discard(peer: Peer, arguments: Map) -> Value:
    """Deletes what is staged under keys with this beginning, and may close one for good."""
    close = texts(arguments, "close") if "close" in arguments else None
    await peer.home.staging.discard(texts(arguments, "key"), close=close, by=peer.bearer.holder)
    return None


async def _publish(peer: Peer, arguments: Map) -> Value:
    """Commits everything staged under some keys as one turn; returns its epoch once on disk."""
    keys = arguments.get("keys")
    if not isinstance(keys, tuple):
        raise Refused("bad-request", "keys must be an array of keys, or of binary in place of one")
    owner, client = text(arguments, "owner"), text(arguments, "client")
    name = peer.bearer.owner(owner)  # before anything else: a sink asks so for its rights, without a number
    peer.bearer.publisher(client, name, peer.home.clients)
    return await publish(
        peer.home,
        [each if isinstance(each, bytes) else key(each) for each in keys],
        bearer=peer.bearer,
        owner=owner,
        client=client,
        sequence=number(arguments, "sequence"),
        replace=arguments.get("replace") is True,
        by=arguments.get("by"),
        expect=_expected(arguments),
        exclusive=arguments.get("exclusive") is True,
        discard=texts(arguments, "discard") if "discard" in arguments else None,
        close=texts(arguments, "close") if "close" in arguments else None,
        account=peer.account,
        origin=peer.own.client.origin,
    )


def _expected(arguments: Map) -> tuple[Value, ...]:
    """Returns the expectations of a publication."""
    expected = arguments.get("expect", ())
    if not isinstance(expected, tuple) or not are_expectations(expected):
        raise Refused("bad-request", f"expect must be an array of expectations, got {expected!r:.60}")
    return expected


VERBS: Final[Mapping[str, Callable[[Peer, Map], Awaitable[Value]]]] = {
    "stage": _stage,
    "prepare": _prepare,
    "discard": _discard,
    "publish": _publish,
}
