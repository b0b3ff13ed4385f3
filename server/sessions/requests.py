"""Requests: questions with one answer, each a verb with a map of arguments.

``VERBS``, at the end, has them all, and WIRE.md says what each takes and gives.  They are apart from the
connection because they have nothing in common with streams but the socket.

Always: each request gets exactly one answer, or a denial that says why and means that nothing happened.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import ProtocolError, Refused, UsageError
from dataspace.wire import packets as p
from dataspace.wire.arguments import key, number, text, texts
from index.values.values import Map, Value
from relay.store.errors import LogDamaged, LogFailed
from server.hosting.rules import ask_rules
from server.owners.leases import PREFIX as LEASE
from server.publication.publish import prepare, publish, stage, stage_packed
from server.topics.catch_up import topic_acknowledge, topic_epochs, topic_frontier, topic_number

if TYPE_CHECKING:
    from server.sessions.connection import Connection

MAX_WAIT: Final = 60_000
"""Milliseconds that a frontier request may wait."""

MAX_DRAWN: Final = 1_000
"""Boxes that may hang from one in a drawing of the index, which has about so many in all."""


async def answer(connection: Connection, request: p.Request) -> None:
    """Acts on a request: at once if what comes after it may depend on it, else in a task of its own."""
    verb = VERBS.get(request.verb)
    limit = connection.home.config.limits.requests
    if verb is None:
        said = f"no verb {request.verb!r}, known are {', '.join(VERBS)}"
        connection.say(p.Denied(request.number, "unknown-verb", said[:4000]))
    elif connection.asked >= limit:
        said = f"{connection.asked} requests at once, limit requests={limit}"
        connection.say(p.Denied(request.number, "limit", said))
    elif request.verb in AT_ONCE:
        connection.asked += 1
        await _carry_out(connection, request, verb)
    else:
        connection.asked += 1
        connection.start(_carry_out, connection, request, verb)


async def _carry_out(connection: Connection, request: p.Request, verb: Verb) -> None:
    try:
        value = await verb(connection, request.arguments)
    except (Refused, ProtocolError) as refusal:
        connection.say(p.Denied(request.number, refusal.code, refusal.text[:4000]))
    except (LogFailed, LogDamaged) as failure:
        connection.say(p.Denied(request.number, failure.code, str(failure)[:4000]))
    except UsageError as error:
        connection.say(p.Denied(request.number, "bad-request", str(error)[:4000]))
    else:
        connection.say(p.Answer(request.number, value))
    finally:
        connection.asked -= 1
    connection.home.flush()


Verb = Callable[["Connection", Map], Awaitable[Value]]


async def _sync(connection: Connection, _arguments: Map) -> Value:
    """Everything that this connection sent before is on disk: the newest epoch."""
    home = connection.home
    epoch = home.space.epoch
    if home.commits.full is not None and home.commits.durable < epoch:
        raise Refused("disk-full", f"what was sent waits for room on the disk: {home.commits.full}")
    await home.commits.wait_durable(epoch)
    return epoch


async def _status(connection: Connection, _arguments: Map) -> Value:
    await trio.lowlevel.checkpoint()
    return connection.daemon.status(connection.home)


async def _index(connection: Connection, arguments: Map) -> Value:
    """The trie of the space, drawn."""
    await trio.lowlevel.checkpoint()
    home = connection.home
    home.check_space(text(arguments, "space", home.name))
    connection.permit.check_inspect("the index")
    most = number(arguments, "most", 20)
    if not 1 <= most <= MAX_DRAWN:
        raise Refused("bad-request", f"most must be a number from 1 to {MAX_DRAWN}, got {most}")
    return home.space.index.draw(text(arguments, "form", "text"), most=most)


async def _actors(connection: Connection, _arguments: Map) -> Value:
    """The actors that the daemon hosts, and how each has fared."""
    await trio.lowlevel.checkpoint()
    connection.permit.check_inspect("the actors")
    return connection.daemon.hosting.status()


async def _frontier(connection: Connection, arguments: Map) -> Value:
    """The highest epoch on disk, waiting up to ``wait`` milliseconds for one beyond ``after``."""
    home = connection.home
    home.check_space(text(arguments, "space", home.name))
    after = number(arguments, "after", -1)
    wait = min(number(arguments, "wait", 0), MAX_WAIT) / 1000
    if home.commits.durable <= after and wait > 0:
        with trio.move_on_after(wait):
            await home.commits.wait_beyond(after)
    return Map(
        {
            "epoch": home.commits.durable,
            "oldest": home.log.oldest,
            "space": home.identity,
            "gaps": home.log.gaps(max(after, 0)),
        }
    )


async def _within(connection: Connection, arguments: Map) -> Value:
    """The last epoch of (after, upto] up to which there are no more than ``changes``, but at least one."""
    home = connection.home
    upto = min(number(arguments, "upto"), home.commits.durable)
    asked = (number(arguments, "after"), upto, number(arguments, "changes"))
    return await trio.to_thread.run_sync(home.log.within, *asked)


async def _stage(connection: Connection, arguments: Map) -> Value:
    """Keeps operations on disk under a key until they are published or discarded."""
    rows = arguments.get("rows")
    if isinstance(rows, bytes):
        return await stage_packed(connection.home, texts(arguments, "key"), rows, connection.permit)
    operations = arguments.get("operations")
    if not isinstance(operations, tuple):
        raise Refused("bad-request", "operations must be an array")
    await stage(connection.home, texts(arguments, "key"), operations, connection.permit)
    return len(operations)


async def _prepare(connection: Connection, arguments: Map) -> Value:
    """Reads operations that are about to be published; nothing depends on it."""
    rows = arguments.get("rows")
    if not isinstance(rows, bytes):
        raise Refused("bad-request", "rows must be binary")
    return await prepare(connection.home, rows, connection.permit)


async def _discard(connection: Connection, arguments: Map) -> Value:
    """Drops all that is staged under keys with this beginning, and may close one for good."""
    close = texts(arguments, "close") if "close" in arguments else None
    await connection.home.staging.discard(texts(arguments, "key"), close=close)
    return None


async def _publish(connection: Connection, arguments: Map) -> Value:
    """Makes one turn of all that is staged under some keys; answers with its epoch, once on disk."""
    keys = arguments.get("keys")
    if not isinstance(keys, tuple):
        raise Refused("bad-request", "keys must be an array of keys, or of binary in place of one")
    _check_publisher(connection, text(arguments, "owner"), text(arguments, "client"))
    return await publish(
        connection.home,
        [each if isinstance(each, bytes) else key(each) for each in keys],
        permit=connection.permit,
        owner=text(arguments, "owner"),
        client=text(arguments, "client"),
        sequence=number(arguments, "sequence"),
        replace=arguments.get("replace") is True,
        by=arguments.get("by"),
        exclusive=arguments.get("exclusive") is True,
        discard=texts(arguments, "discard") if "discard" in arguments else None,
        close=texts(arguments, "close") if "close" in arguments else None,
    )


def _check_publisher(connection: Connection, owner: str, client: str) -> None:
    """Refuses to publish for an owner, or under the identity of one, that the peer may not speak for."""
    if client.startswith("owner:"):
        connection.permit.check_durable(client.removeprefix("owner:"))
    if owner.startswith(LEASE):
        connection.permit.check_writes()
    else:
        connection.permit.check_durable(owner)


async def _lease(connection: Connection, arguments: Map) -> Value:
    """Grants or renews a lease; whether it is a new one, without facts."""
    connection.permit.check_writes()
    return Map({"fresh": connection.home.leases.grant(text(arguments, "owner"))})


async def _renew(connection: Connection, arguments: Map) -> Value:
    """Renews a lease that runs."""
    connection.home.leases.renew(text(arguments, "owner"))
    return None


async def _release(connection: Connection, arguments: Map) -> Value:
    """Ends a lease, and retracts what it owned."""
    connection.home.leases.release(text(arguments, "owner"))
    return None


async def _join(connection: Connection, arguments: Map) -> Value:
    """Lets this connection publish to a partition of a topic."""
    told = connection.following.join(_topic(connection, arguments), arguments)
    await connection.daemon.keeping.writer.wait_durable()
    return told


def _topic(connection: Connection, arguments: Map) -> str:
    """The name of a topic that this connection may use."""
    name = text(arguments, "topic")
    connection.permit.check_topic(name)
    return name


async def _lookup(connection: Connection, arguments: Map) -> Value:
    """What a topic is, waiting up to ``wait`` milliseconds until there is one."""
    name, wait = _topic(connection, arguments), max(0, number(arguments, "wait", 0))
    entry = await connection.daemon.topics.wait_for(name, wait)
    topic = entry.topic
    return Map(
        {
            "id": entry.number,
            "partitions": len(topic.partitions),
            "dimensions": topic.order.dimensions,
            "retain": topic.history.budget if entry.ledger is None else entry.ledger.retain,
            "durable": entry.ledger is not None,
        }
    )


async def _topic_frontier(connection: Connection, arguments: Map) -> Value:
    """What is completed of a durable topic, waiting up to ``wait`` milliseconds for more than ``after``."""
    after, wait = number(arguments, "after", -1), max(0, number(arguments, "wait", 0))
    return await topic_frontier(connection.daemon, _topic(connection, arguments), after, wait)


async def _topic_epochs(connection: Connection, arguments: Map) -> Value:
    """Some of the completed epochs of a range of numbers, the same each time."""
    name, identity = _topic(connection, arguments), number(arguments, "id")
    return await topic_epochs(connection.daemon, name, identity, arguments)


async def _topic_number(connection: Connection, arguments: Map) -> Value:
    """After which number the completed epochs at or after a time begin."""
    name, identity = _topic(connection, arguments), number(arguments, "id")
    return await topic_number(connection.daemon, name, identity, arguments.get("time"))


async def _topic_acknowledge(connection: Connection, arguments: Map) -> Value:
    """Notes on disk that a named reader is done with the completed epochs to a number."""
    reader, epoch = text(arguments, "reader"), max(0, number(arguments, "number"))
    if not reader:
        raise Refused("bad-request", "reader must not be empty")
    place = (_topic(connection, arguments), number(arguments, "id"))
    connection.permit.check_reader(reader)
    return await topic_acknowledge(connection.daemon, *place, reader, epoch, time.time_ns() // 1000)


async def _end_topic(connection: Connection, arguments: Map) -> Value:
    """Ends a topic that this session made."""
    connection.following.end_topic(_topic(connection, arguments))
    await connection.daemon.keeping.writer.wait_durable()
    return None


async def _acknowledge(connection: Connection, arguments: Map) -> Value:
    """Notes on disk that a named reader is done with all up to an epoch, or forgets the reader."""
    home, reader = connection.home, text(arguments, "reader")
    home.check_space(text(arguments, "space", home.name))
    connection.permit.check_reads()
    if not reader:
        raise Refused("bad-request", "reader must not be empty")
    connection.permit.check_reader(reader)
    if arguments.get("forget") is True:
        await trio.to_thread.run_sync(home.log.forget, reader)
        return Map({"epoch": 0, "oldest": home.log.oldest})
    epoch = max(number(arguments, "epoch"), 0)
    if epoch > home.commits.durable:
        raise Refused("epoch-ahead", f"epoch {epoch} is still to come, the newest is {home.commits.durable}")
    await trio.to_thread.run_sync(home.log.acknowledge, reader, epoch, time.time_ns() // 1000)
    known = home.log.readers.get(reader)
    return Map({"epoch": known.epoch if known else 0, "oldest": home.log.oldest})


async def _rules(connection: Connection, arguments: Map) -> Value:
    """What is asked of the rules: how they are carried out, or why a fact is there or not."""
    await trio.lowlevel.checkpoint()
    connection.permit.check_inspect("the rules")
    rules, about = connection.home.space.rules, arguments.get("about")
    return ask_rules(rules, text(arguments, "ask"), about, text(arguments, "form", "text"))


VERBS: Final[dict[str, Verb]] = {
    "sync": _sync,
    "status": _status,
    "index": _index,
    "actors": _actors,
    "frontier": _frontier,
    "within": _within,
    "acknowledge": _acknowledge,
    "stage": _stage,
    "prepare": _prepare,
    "discard": _discard,
    "publish": _publish,
    "rules": _rules,
    "join": _join,
    "lookup": _lookup,
    "end-topic": _end_topic,
    "topic-frontier": _topic_frontier,
    "topic-epochs": _topic_epochs,
    "topic-number": _topic_number,
    "topic-acknowledge": _topic_acknowledge,
    "lease": _lease,
    "renew": _renew,
    "release": _release,
}
AT_ONCE: Final = frozenset(["lease", "renew", "release"])
"""Verbs that do not wait, and that later packets of the same connection rely on."""
