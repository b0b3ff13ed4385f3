"""``PUT /v1/notice``: puts up a notice."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from server.sessions.state import DaemonState
from server.web.inner import inner_session
from server.web.routes.parameters import Asked, read_object, read_text
from server.web.routes.route import Row


async def _put_up(daemon: DaemonState, asked: Asked) -> Response:
    async with inner_session(daemon, asked.caller, here=True) as session:
        said = await read_object(daemon, asked, ("text",))
        await session.request("notice", {"text": read_text(said, "text")})
    return Response(status_code=204)


BODY: Final[dict[str, object]] = {"type": "object", "properties": {"text": {"type": "string"}}}
ROUTES: Final = (Row("PUT", "/v1/notice", "put up a notice", _put_up, body=BODY, returns={204: ""}),)
