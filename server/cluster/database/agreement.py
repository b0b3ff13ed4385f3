"""Do the daemons of a store have the same settings?  Each states a digest of those in which they must agree.

Rights, limits, rules and what a daemon hosts hold by its own configuration.  Where they differ a client is
allowed other things at another daemon, and another leader derives other facts.

The digest is made slowly and of secrets too, so that tokens cannot be guessed from it: a reader of the
database sees only whether two daemons agree.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from server.config.model import Config
    from server.config.rules import RuleText

SIZE: Final = 16
"""Bytes of a digest."""

COST: Final = 1 << 13
"""About 25 ms, and 8 MiB for that time."""


def digest(config: Config) -> bytes:
    """Returns a digest of the rights, limits, retention, rules and hosted programs of a configuration."""
    stated = "\n".join(_stated(config)).encode(errors="surrogatepass")
    return hashlib.scrypt(stated, salt=b"dataspace cluster 1", n=COST, r=8, p=1, dklen=SIZE)


def _stated(config: Config) -> Iterator[str]:
    """Yields the settings as text; files by their content, and nothing that is a machine's own."""
    for key in sorted(config.keys, key=lambda key: key.name):
        yield repr((key.name, key.secret, key.rights, key.quota))
    yield repr((replace(config.limits, memory=0), config.quotas))
    main = (config.space_limits, config.retention, config.show)
    yield repr((main, *_texts(config.rules)))
    for space in sorted(config.spaces, key=lambda space: space.name):
        yield repr((space.name, space.limits, space.retention, space.show, *_texts(space.rules)))
    yield repr((config.actors, config.flows))
    if config.functions:
        yield repr(config.functions)


def _texts(rules: Sequence[Path | RuleText]) -> Iterator[object]:
    """Yields rules; a file by its name and content."""
    for rule in rules:
        text: object = rule
        if isinstance(rule, Path):
            text = rule.name
            with suppress(OSError):  # it is named when it is read for use
                text = rule.name, rule.read_bytes()
        yield text
