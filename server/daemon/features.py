"""The features of a daemon: whoever adds one adds its folder, and a line here."""

from __future__ import annotations

from typing import Final

from server import claims, publication
from server.archiving import feature as archive
from server.cluster import feature as cluster
from server.features import Feature
from server.groups import feature as groups
from server.hosting import feature as hosting
from server.monitoring import feature as monitoring
from server.streams import verbs as streams
from server.topics import feature as topics
from server.tracing import feature as tracing

FEATURES: Final[tuple[Feature, ...]] = (
    streams.FEATURE,
    claims.FEATURE,
    publication.FEATURE,
    groups.FEATURE,
    topics.FEATURE,
    hosting.FEATURE,
    archive.FEATURE,
    cluster.FEATURE,
    tracing.FEATURE,
    monitoring.FEATURE,
)
"""In the order in which their parts are made: the archive is of topics as well."""
