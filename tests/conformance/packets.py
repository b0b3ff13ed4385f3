"""Packets as the kit writes them: the name and the fields, each in JSON."""

from __future__ import annotations

from typing import Any, Final

from dataspace.codec import pack
from dataspace.wire import packets as p
from index.values.jsons import from_json
from tests.conformance.vectors import plain

Json = Any

NUMBERS: Final = {kind.__name__: number for kind, number in p.NUMBERS.items()}


def shown(packet: p.Packet) -> list[Json]:
    """Returns a packet as the kit writes it."""
    return [type(packet).__name__, *[plain(each) for each in p.written(packet)[1:]]]


def framed(said: list[Json]) -> bytes:
    """Returns the frame of a packet; it may have more fields than are known."""
    name, *fields = said
    body = pack([NUMBERS[name], *[from_json(each) for each in fields]])
    return len(body).to_bytes(4, "big") + body


def filled(said: Json, values: dict[str, Json]) -> Json:
    """Returns what is said with the values of what is free in it."""
    match said:
        case {"?": name}:
            return values[name]
        case dict():
            return {at: filled(each, values) for at, each in said.items()}
        case list():
            return [filled(each, values) for each in said]
        case _:
            return said
