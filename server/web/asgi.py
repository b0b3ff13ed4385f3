"""The seam to what answers requests: an ASGI application, called once for each request.

``app(scope, receive, send)`` is an application of ASGI 3 (asgi.readthedocs.io, HTTP connection scope), on
trio:

- ``scope`` is of type ``http``, with ``asgi.spec_version`` 2.4, ``client`` and ``server`` as
  ``(host, port)``.  ``scope["state"]["peer"]`` is the peer as the daemon names it (``HOST:PORT``), from
  which ``Principal.of_peer`` makes the principal without a token.  ``scope["state"]["lent"]`` is entered
  while a session has the places of the connection in ``limits.connections`` and ``quota.connections``.  In
  ``scope["path"]`` an escaped ``/`` stays within its segment (``path_of``).  There is no ``lifespan`` and no
  ``websocket``: the listener itself serves ``/ws``.
- ``receive()`` returns the body in parts of up to 64 KiB as it comes, so a token can be checked before; it
  asks for the body of a client that waits for ``100 Continue``.  A body beyond ``web.body_bytes`` or
  ``web.body_seconds`` is ``http.disconnect``, and answered with a problem unless a response has begun.  After
  the body it waits, and returns ``http.disconnect`` as soon as the client has closed, or the response is
  complete.  So a stream without end runs beside a task that awaits ``receive()``, or it would notice the end
  of its client with its next write only.
- ``send(message)`` returns once the kernel has taken the bytes, so a client that does not read holds the
  application back; after ``limits.stalled_seconds`` of that, or where the client is gone, it raises
  ``ClientGone``, an ``OSError``.

Always: what the application raises, groups of exceptions included, ends in a problem with status 500, or in
a closed connection where a response has begun, and never in the nursery of the listener; it is cancelled
when the daemon stops.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from server.web.problems import problem

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class ClientGone(OSError):
    """The client has closed the connection, or has not read for too long."""


async def nothing_here(scope: Scope, _receive: Receive, send: Send) -> None:
    """The application that has no page: answers each request with status 404."""
    headers, body = problem(404, "no-route", f"there is nothing at {scope['path']}")
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": body})
