"""Times and sizes as text, on the command line and in the configuration file."""

from __future__ import annotations

import re
from typing import Final

from dataspace.errors import UsageError

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", re.ASCII)
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)(?:([KMGT])(i)?)?B?", re.ASCII)
_UNITS: Final = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str) -> float:
    """Returns the seconds in text such as ``10s``, ``500ms``, ``2m``, ``1.5h``.

    >>> duration("500ms"), duration("2m"), duration("3")
    (0.5, 120.0, 3.0)
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is no duration, write for example 10s, 500ms, 2m or 1h")
    return float(found[1]) * _UNITS[found[2]]


def size(text: str) -> int:
    """Returns the bytes in text such as ``512KiB``, ``10GiB``, ``1.5MB`` or ``4096``.

    >>> size("512KiB"), size("1.5MB"), size("4096")
    (524288, 1500000, 4096)
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is no size, write for example 4096, 512KiB, 100MB or 10GiB")
    number = float(found[1]) * (1024 if found[3] else 1000) ** " KMGT".index(found[2] or " ")
    if number >= 1 << 63:
        raise UsageError(f"a size below 2^63 bytes is needed, not {text!r:.80}")
    return int(number)
