"""The version of this package, where the wheel, the daemon and the clients read it, and which build it is.

The default build is pure Python.  In the other one the parts that most of a turn passes are machine code.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

__version__: Final = "0.1.0"

PARTS: Final = {
    "index": "index.values.values",
    "kernel": "dataspace.kernel.space",
    "wire": "dataspace.wire.session",
    "delivery": "relay.delivery.shared",
    "log": "relay.log.segments",
    "store": "relay.store.sqlite.storage",
    "sessions": "server.connections.connection",
}
"""Parts that may be machine code, and a module by which each is known."""


def compiled_parts() -> list[str]:
    """Returns the parts that are machine code here; none in the default build."""
    return [part for part, module in PARTS.items() if _is_compiled(module)]


def _is_compiled(module: str) -> bool:
    spec = find_spec(module)
    return spec is not None and spec.origin is not None and not spec.origin.endswith(".py")


def described(version: str, parts: Sequence[str]) -> str:
    """Returns a version and its build for people.

    >>> described("0.1.0", ["index", "kernel"]), described("0.1.0", [])
    ('0.1.0 (compiled: index, kernel)', '0.1.0')
    """
    return f"{version} (compiled: {', '.join(parts)})" if parts else version
