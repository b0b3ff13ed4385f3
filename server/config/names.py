"""Names that clients choose and the daemon remembers: identities, owners, leases. They are bounded."""

from __future__ import annotations

from typing import Final

from dataspace.errors import Refused

NAME_BYTES: Final = 1024
"""Bytes of a name, unless the limit is another one."""

IDENTITIES: Final = 65_536
"""Identities without a connection that are remembered unless the limit is another one: 2 KiB each at most."""


def check_name(what: str, name: str, most: int = NAME_BYTES) -> None:
    """Raises ``Refused`` for a name of more than so many bytes; O(1) for the usual ones."""
    if len(name) * 4 <= most:
        return
    size = len(name.encode(errors="surrogatepass"))
    if size > most:
        raise Refused(
            "limit", f"{what} of {size} bytes, the limit is limits.name_bytes={most}: choose a shorter name"
        )
