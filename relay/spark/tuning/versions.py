"""Versions: whether the tuning was written for the internals of the PySpark that runs here.

The rest of this folder leans on names that PySpark does not promise: a private class, the program from which
workers are forked, the place of an archive.  With another version those names may be there and mean something
else, which would show as a wrong result rather than as an error.  So all of it asks here first.

Always: with another version everything works as without tuning; each process logs that once.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Final

import pyspark

KNOWN: Final = ("4.3.",)
"""What the versions begin with for which this folder was written and tested."""

log: Final = logging.getLogger("dataspace.spark")


def is_known(version: str | None = None) -> bool:
    """True if the tuning was written for PySpark's internals of this version.

    >>> is_known("4.3.0"), is_known("4.4.0"), is_known("4.30.1")
    (True, False, False)
    """
    if version is not None:
        return version.startswith(KNOWN)
    return _is_known_here()


@cache
def _is_known_here() -> bool:
    known = is_known(pyspark.__version__)
    if not known:
        log.info(
            "PySpark %s is not one of %s, for which relay/spark/tuning was written: it is off",
            pyspark.__version__,
            written_for(),
        )
    return known


def written_for() -> str:
    """Returns the versions as people write them."""
    return ", ".join(f"{each}x" for each in KNOWN)
