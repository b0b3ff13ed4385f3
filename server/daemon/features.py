"""The features of a daemon: whoever adds one adds its folder, and a line here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from server.archiving import feature as archive
from server.cluster import feature as cluster
from server.features import Feature
from server.groups import feature as groups
from server.hosting import feature as hosting
from server.monitoring import feature as monitoring
from server.streams import verbs as streams
from server.topics import feature as topics
from server.tracing import feature as tracing
from server.turns import claims, publication

if TYPE_CHECKING:
    from server.web.routes.route import Row

TOP: Final = __package__.rpartition(".")[0]
"""The package below which the modules of routes are."""

FEATURES: Final[tuple[Feature, ...]] = (
    streams.FEATURE,
    claims.FEATURE,
    publication.FEATURE,
    topics.FEATURE,
    groups.FEATURE,
    hosting.FEATURE,
    archive.FEATURE,
    cluster.FEATURE,
    tracing.FEATURE,
    monitoring.FEATURE,
)
"""In the order in which their parts are made: groups and the archive are of topics as well."""

STREAMS: Final = {kind: key for feature in FEATURES for kind, key in feature.streams.items()}
"""What feeds the streams that clients open, by their kinds."""
PARTS: Final = [each for feature in FEATURES for each in feature.spaces]
"""What features keep in each space."""
PACKETS: Final = {kind: key for feature in FEATURES for kind, key in feature.packets.items()}
"""What takes packets that are of a feature."""


def routes() -> tuple[Row, ...]:
    """Loads all routes, which a daemon without HTTP does not need."""
    from server.web.routes.table import ROUTES

    modules = [import_module(f"{TOP}.{each.routes}") for each in FEATURES if each.routes]
    return (*ROUTES, *[row for module in modules for row in module.ROUTES])
