"""Errors of a cluster."""

from __future__ import annotations

from dataspace.errors import DataspaceError


class SteppedDown(DataspaceError):
    """This daemon leads no longer: its lease ran out, or another daemon leads by now."""
