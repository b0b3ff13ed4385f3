"""Exposure: what an operator should know at the start about who can reach the daemon, and read its secrets.

Always: only what can be known for certain is said; nothing here keeps a daemon from starting.
"""

from __future__ import annotations

import ipaddress
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from dataspace.transport.addresses import Address, parse_listen
from relay.store.private import OTHERS
from server.config.model import Config


def warnings(config: Config) -> Iterator[str]:
    """Yields what is exposed by these settings, with what to do about it."""
    addresses = [parse_listen(each) for each in config.listen]
    remote = [each for each in addresses if not each.path and not _is_local(each.host)]
    yield from _reachable(config, remote)
    if config.admin is not None and not _is_local(parse_listen(config.admin).host):
        yield (
            f"the admin address {config.admin.removeprefix('tcp:')} is beyond this machine: every peer "
            "reads the metrics, without a token; listen on 127.0.0.1, or keep others out by a firewall"
        )
    yield from _readable([each for each in config.secret_files if _mode(each) & stat.S_IROTH])
    for space in config.all_spaces():
        if isinstance(space.data, Path) and _mode(space.data) & OTHERS:
            yield (
                f"other users may list the data directory {space.data} (mode {_mode(space.data):04o}), "
                f"though they cannot read its files: chmod 700 {space.data}"
            )


def _reachable(config: Config, remote: Iterable[Address]) -> Iterator[str]:
    for address in remote:
        if not config.keys:
            if address.tls and config.tls is not None and config.tls.client_ca is not None:
                continue  # a certificate is needed
            yield (
                f"listening on {address.listen}, beyond this machine, without tokens: every peer may do "
                "everything; add [[tokens]], or listen on 127.0.0.1"
            )
        elif not address.tls:
            yield (
                f"listening on {address.listen}, beyond this machine, with tokens but without TLS: they "
                f"and all facts can be read on the way; listen on {_safe(address)}"
            )


def _safe(address: Address) -> str:
    """Returns the same address with TLS."""
    return replace(address, tls=True).listen


def _readable(files: Iterable[Path]) -> Iterator[str]:
    for file in files:
        yield f"{file} holds secrets, and every user can read it (mode {_mode(file):04o}): chmod 600 {file}"


def _is_local(host: str) -> bool:
    """True for an address that only this machine reaches; other names than ``localhost`` may be of any."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def _mode(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0
