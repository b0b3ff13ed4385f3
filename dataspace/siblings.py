"""Is this our ``index``, or somebody else's?

The packages ``index``, ``relay`` and ``server`` have everyday names, and a user's own ``server.py`` in the
working directory comes before ours on the path.  That must not end in a puzzling error far away.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from index.errors import UsageError

_OURS = Path(__file__).resolve().parent.parent


def check() -> None:
    """Raises ``UsageError`` naming the file that stands in the way of one of our packages."""
    for name in ("index", "relay", "server"):
        found = importlib.util.find_spec(name)
        origin = Path(found.origin).resolve() if found is not None and found.origin else None
        if origin is None or origin.parent.parent != _OURS:
            raise UsageError(
                f"the package {name!r} of dataspace-server is hidden by {origin or 'nothing to be found'}; "
                "rename that file or start from another directory"
            )
