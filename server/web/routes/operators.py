"""``GET /metrics``, ``/healthz`` and ``/readyz``: the pages of an operator, as on the admin address.

Always: metrics are shown to bearers that may inspect; health, to every client.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from dataspace.errors import UsageError
from dataspace.wire.features import MAIN
from server.web.inner.sessions import ServingDaemon, inner_session
from server.web.routes.parameters import Asked
from server.web.routes.problems import Problem

METRICS: Final = "/metrics"
PAGES: Final = (METRICS, "/healthz", "/readyz")


async def page(daemon: ServingDaemon, request: Request) -> Response:
    """Returns one of ``PAGES``; raises ``Problem`` where metrics cannot be written, or may not be seen."""
    path = request.url.path
    if path == METRICS:
        async with inner_session(daemon, Asked(request, ()).caller, MAIN) as session:
            await session.request("sessions", {"most": 0})  # the right that it needs is the one to inspect
    try:
        status, headers, body = await daemon.pages.answer(path, request.headers.items())
    except UsageError as error:
        raise Problem("bad-request", str(error), 501) from None
    return Response(body, status, dict(headers))
