"""Values at the limits of the wire, and one beyond each: what is accepted comes back everywhere.

The archive's test of hostile values and the matrix of values and stages draw from this one list.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from dataspace.codec import MAX_DEPTH
from dataspace.wire.outgoing import FACT_DEPTH
from index.values.values import Map, Record, Value

FIRST: Final = datetime(1, 1, 1, tzinfo=UTC)
LAST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)

ATOMS: Final[tuple[Value, ...]] = (
    *(None, True, 0, 2**63 - 1, -(2**63), 2**63, 0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.8e308),
    *("", "\x00", "\U0010ffff" * 32, "\uffff", "é" * 33, "\U0001f600", "p17\ud7ff", b"", b"\xff" * 40),
    *(
        FIRST,
        LAST,
        datetime(999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 1, UTC),
    ),
    *((), (1, (2, None)), Map([(1, "a"), (True, "b")]), Record("r"), Record("r", Record("r", math.nan))),
)

LABELS: Final = (
    *("p", "P", "", ".", "..", "a/b", "a%2Fb", "label=p", "arity=1", "rest", "_delta_log", "erased"),
    *("日" * 27, "日" * 28, "日" * 42, "日" * 43, "日" * 83, "é" * 64, "é" * 125),
    *("x" * 128, "x" * 129, "x" * 249, "x" * 250, "\U0001f600" * 20, "\U0001f600" * 32),
    *("a b", "a'b\"c", "a\nb", "a\x00b", "@" + "0" * 32, "~", "{}", "*", "?", "[a]"),
    *("NaN", "null", "-1", "%", "$", "_", "lit", "Observe", "rule", "and", "not"),
)


def nested(levels: int, around: Callable[[Value], Value]) -> Value:
    """Returns a value with so many levels of nesting."""
    made: Value = "x"
    for _ in range(levels):
        made = around(made)
    return made


def limits() -> dict[str, Value]:
    """Returns values by what they are; some of them are beyond a limit."""
    found: dict[str, Value] = {f"atom {at} {value!r:.20}": value for at, value in enumerate(ATOMS)}
    for number in (2**53, 2**53 + 1, -(2**53) - 1, 2**64 - 1, 2**64, -(2**63) - 1, 10**400, -(10**4000)):
        found[f"integer of {number.bit_length()} bits {number < 0}"] = number
    for label in LABELS:
        found[f"label {label[:10]!r} of {len(label.encode())} bytes"] = Record(label, 1)
    around: dict[str, Callable[[Value], Value]] = {
        "sequence": lambda value: (value,),
        "record": lambda value: Record("r", value),
        "map": lambda value: Map([("k", value)]),
        "odd map": lambda value: Map([(1, value)]),
    }
    for kind, wrap in around.items():
        for levels in (*range(FACT_DEPTH - 4, FACT_DEPTH + 3), MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1):
            found[f"{kind} of {levels} levels"] = nested(levels, wrap)
    for width in (15, 16, 32_767, 32_768):
        found[f"sequence of {width}"] = tuple(range(width))
        found[f"record of {width}"] = Record("wide", *range(width))
    found["map of 4 096"] = Map([(number, None) for number in range(4_096)])
    for special in ("$", "_", "lit", "?", "...", "rule"):
        found[f"like a pattern, {special}"] = Record(special, "x", None, Record("_"))
    found["map of all keys"] = Map(
        [(each, 1) for each in (1, True, 1.0, "1", b"1", None, math.nan, (1,), FIRST)]
    )
    for size in (31, 32, 255, 256, 65_535, 65_536):
        found[f"text of {size}"] = "x" * size
        found[f"bytes of {size}"] = b"x" * size
    return found
