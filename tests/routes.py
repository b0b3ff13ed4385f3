"""All routes of a daemon."""

from __future__ import annotations

from typing import Final

from server.daemon.features import routes

ROUTES: Final = routes()
