"""The pages of the reference that are generated, from the project itself, whenever the site is built.

So none can be out of date: commands are those of the parser, settings those of the configuration, metrics
those that are exposed, packets those of the wire.
"""

from __future__ import annotations

from docs.reference import api, codes, commands, metrics, packets, settings


def generate() -> dict[str, str]:
    """Returns the text of each generated page, by its place in the site."""
    return {
        "reference/commands.md": commands.page(),
        "reference/settings.md": settings.page(),
        "reference/metrics.md": metrics.page(),
        "reference/codes.md": codes.page(),
        "internals/packets.md": packets.page(),
        **api.pages(),
    }
