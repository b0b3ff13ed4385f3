"""Plain: packed values as what JSON is written from, without making values of them on the way.

It is the JSON of values (``index.values.jsons``), except that a float without a fraction has a tag as well,
``{"@float": "1.0"}``: JavaScript reads ``1.0`` as ``1``, and both would be one value.

Always: nothing is bounded, so this is for bytes that were packed here and not for bytes from a peer.
"""

from __future__ import annotations

import math
from base64 import b64encode
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias

import msgpack

from dataspace.codec import BIG_INTEGER, MAX_DEPTH, RECORD, too_deep
from index.values.atoms import integer_text, time_text
from index.values.jsons import EXACT

Plain: TypeAlias = Any
"""Lists, dicts with keys of text, and atoms."""


def decoded(packed: bytes) -> Plain:
    """Returns packed values with the tags that compounds need; their atoms are as they are.

    >>> from dataspace.codec import pack
    >>> decoded(pack((1.0, 1 << 64)))
    [1.0, {'@int': '18446744073709551616'}]
    """
    return _DECODERS[0](packed)


def tagged(plain: Plain) -> Plain:
    """Returns the same with a tag on each atom that JSON has no form for; O(size).

    >>> tagged([1, 1.0, 0.5, b"!", 1 << 60])
    [1, {'@float': '1.0'}, 0.5, {'@bytes': 'IQ=='}, {'@int': '1152921504606846976'}]
    """
    kind = plain.__class__
    if kind is str:
        return plain
    if kind is list:
        return [tagged(each) for each in plain]
    if kind is dict:
        return {at: tagged(each) for at, each in plain.items()}
    if kind is int:
        return plain if -EXACT <= plain <= EXACT else {"@int": integer_text(plain)}
    if kind is float:
        return {"@float": repr(plain)} if plain.is_integer() or not math.isfinite(plain) else plain
    if kind is bytes:
        return {"@bytes": b64encode(plain).decode()}
    return {"@time": time_text(plain)} if isinstance(plain, datetime) else plain


def _decoder(depth: int) -> Any:
    """Returns what decodes a payload inside ``depth`` extensions."""

    def below(payload: bytes) -> Plain:
        if depth >= MAX_DEPTH:
            raise too_deep()
        return _DECODERS[depth + 1](payload)

    def extension(code: int, payload: bytes) -> Plain:
        if code == RECORD:
            label, *fields = below(payload)
            return {"@": label, "fields": fields}
        if code == BIG_INTEGER:
            return {"@int": integer_text(int.from_bytes(payload, "big", signed=True))}
        halves = below(payload)
        return _map(list(zip(halves[::2], halves[1::2], strict=True)))

    return partial(
        msgpack.unpackb,
        use_list=True,
        strict_map_key=True,
        timestamp=3,
        object_pairs_hook=_map,
        ext_hook=extension,
    )


def _map(pairs: list[tuple[Plain, Plain]]) -> Plain:
    """Returns the JSON of a map: an object if its keys are text that is no tag."""
    for at, _ in pairs:
        if at.__class__ is not str or at.startswith("@"):
            return {"@map": [list(pair) for pair in pairs]}
    return dict(pairs)


_DECODERS: Final = [_decoder(depth) for depth in range(MAX_DEPTH + 1)]
