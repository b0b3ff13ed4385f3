"""The vectors of the conformance kit: values and patterns, in each of their forms.

README.md beside this file says what the fields are.  Everything is computed by the Python side from the lists
below, so the files cannot say something else than the code that they are held against.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from dataspace.codec import pack, unpack
from index.patterns.patterns import capture_names, matcher
from index.patterns.text import parse, unparse
from index.values.jsons import Json, from_json, to_json
from index.values.values import Map, Record, Value, order_key

FOLDER: Final = Path(__file__).parent

Vectors: TypeAlias = dict[str, Any]


def plain(value: Value) -> Json:
    """Returns the JSON of a value in which integral floats are tagged, so that ``JSON.parse`` keeps them."""
    return _tagged(to_json(value))


def _tagged(said: Json) -> Json:
    if isinstance(said, float) and said.is_integer():
        return {"@float": repr(said)}
    if isinstance(said, list):
        return [_tagged(each) for each in said]
    if isinstance(said, dict):
        return {name: _tagged(each) for name, each in said.items()}
    return said


# -- values -------------------------------------------------------------------------------------------

EDGES: Final = sorted(
    {
        sign * (1 << bits) + by
        for bits in (0, 4, 5, 7, 8, 15, 16, 31, 32, 52, 53, 62, 63, 64, 65, 71, 72, 79, 80)
        for sign in (-1, 1)
        for by in (-1, 0, 1)
    }
)
"""Integers around every width that msgpack, JavaScript and the big form change at."""

FLOATS: Final = [
    *(-math.inf, -1.7976931348623157e308, -(2.0**64), -(2.0**53), -1.0, -0.5, -5e-324, -0.0, 0.0, 5e-324),
    *(1e-07, 0.0001, 0.00012345, 0.1, 0.5, 1.0, 1.5, 100.0, 123456789.125, 2.0**53, 1e15, 1e16, 1e21, 1e22),
    *(2.0**64, 1.7976931348623157e308, math.inf, math.nan),
]

TEXTS: Final = [
    *("", "0", "A", "a", "aa", "a\x00", "b", "ü", "\u2028", "\ud7ff", "\ue000", "\ufeffBOM", "\uffff"),
    *(
        "\U00010000",
        "😀",
        "__proto__",
        'say "hi"\\\n\t\x7f',
        "x" * 31,
        "x" * 32,
        "ü" * 16,
        "x" * 255,
        "x" * 256,
    ),
]

TIMES: Final = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2106, 2, 7, 6, 28, 15, tzinfo=UTC),
    datetime(2106, 2, 7, 6, 28, 16, tzinfo=UTC),
    datetime(2514, 5, 30, 1, 53, 3, 999_999, tzinfo=UTC),
    datetime(2514, 5, 30, 1, 53, 4, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]


def _nested(levels: int) -> Json:
    said: Json = 1
    for _ in range(levels):
        said = [said]
    return said


def _deep(levels: int) -> Value:
    value: Value = 1
    for _ in range(levels):
        value = (value,)
    return value


COMPOUNDS: Final[list[Value]] = [
    *((), (None,), (1,), (1, 1), (1.0,), (True,), (2,), tuple(range(15)), tuple(range(16)), _deep(64)),
    *(Record("p"), Record("p", 1), Record("p", 1, 0), Record("q"), Record("two words", "x"), Record(1, "x")),
    *(Record(Record("says", "a"), 1), Record("_"), Record("_", "int"), Record("_", 1), Record("true", True)),
    *(Record("$", "who", None, Record("_")), Record("$", None, None, Record("_")), Record("$", 1, 2, 3)),
    *(Record("$", "n", "int", Record("p", Record("_"))), Record("sensor-1", b""), Record("", "")),
    *(Record("p", "x" * size) for size in (8, 9, 10, 244, 245, 246, 247, 300)),
    *(Map(), Map({"a": 1}), Map({"a": 1, "b": 0}), Map({"b": 0, "a": 1.0}), Map({"a": 2}), Map({"@": 1})),
    *(Map({1: "one", "k": 2}), Map({None: 4, 1: 1})),
    Map([(1, 1), (1.0, 2), (True, 3), ("1", 4), (b"1", 5), (None, 6), ((1,), 7), (Record("k"), 8)]),
    *(Map({"__proto__": 1, "constructor": Map()}), Map({"10": 1, "9": 2, "\uffff": 3, "\U00010000": 4})),
    Map({f"k{n:02}": n for n in range(16)}),
    *(Map({each: 1}) for each in (TIMES[3], TIMES[4], math.inf, 1.5, b":", "a:", Record("p", 1), (1,))),
    *(Map({Record("_", "int"): 1}), Map({Record("$", "x", "int", Record("_")): 1}), Map({False: 1})),
    Map({(): Map({Map(): ()})}),
]

VALUES: Final[list[Value]] = sorted(
    [
        *(None, False, True, *EDGES, -(1 << 2100), *FLOATS, *TEXTS, *TIMES, *COMPOUNDS),
        *(b"", b"\x00", b"!", b'GIF\x89a"\\\n', b"\xff" * 255, b"\xff" * 256),
    ],
    key=order_key,
)

LONGER: Final = (
    *("cc01", "d3ffffffffffffffff", "ca3fc00000", "d90161", "c5000161", "dc000101", "de0001a16101"),
    *("c70401dc0001c0", "82a16202a16101", "c7070394a16202a16101", "c70cff000003e80000000000000001"),
    *(
        "c70cff000003e70000000000000001",
        "cb7ff8000000000001",
        "cbfff8000000000000",
        "c70a02ff800000000000000000",
    ),
    *("d300000000ffffffff", "cf0000000000000001", "db0000000161", "c60000000161", "dd0000000101"),
    *("df00000001a16101", "c9000000040192a170c0", "c800040192a170c0", "d40390", "ca80000000"),
)
"""Bytes that are read, but never written."""

REFUSED: Final = (
    *("", "c1", "91", "a2ff", "a1ff", "a3eda080", "c0c0", "8101c0", "81c0c0", "82a16101a16102"),
    *(
        "d40101",
        "d40190",
        "c70001",
        "c7030191c0c0",
        "d401c0",
        "d4038f",
        "d40391",
        "c7030392c0",
        "c7050394c0c0c0c0",
    ),
    *("d4020f", "c7080200ffffffffffffff", "c70a02" + "00" * 10, "c70002", "d40000"),
    *("d404c0", "c70bff" + "00" * 11, "d7ffffffffff00000000", "c70cff000000007fffffffffffffff"),
    *("dd7fffffff", "df7fffffff", "c67fffffff", "db7fffffff", "c97fffffff01", "d5018190", "c70401c70191c0"),
    "91" * 65 + "c0",
    "c70401d9016101",
)
"""Bytes that are no value, or nest too deeply."""

NO_TEXTS: Final = (
    *(
        "",
        "Alice",
        "present(Alice)",
        "1 2",
        "01",
        "1.",
        ".5",
        "+1",
        "0x",
        "1e999",
        "'a'",
        '"a',
        '"\\q"',
        '"\\ud800"',
    ),
    *(
        '"a\nb"',
        "[1",
        "[1 2]",
        "{1 2}",
        "{1: 1, 1: 2}",
        "p (1)",
        "true(1)",
        "_(1)",
        "_:number",
        "$n:number",
        "<1>",
    ),
    *(
        'b"ü"',
        'b"\\u0041"',
        "@2026-02-30T00:00:00Z",
        "@2026-01-01",
        "@2026-01-01T24:00:00Z",
        "@0000-01-01T00:00:00Z",
    ),
    *("[" * 65 + "]" * 65, "nan1", "--1", "$n(1", "1" * 641, "@2026-01-01T00:00:00.1234567Z"),
)
"""Texts that are no value."""

OTHER_TEXTS: Final = (
    *(
        " [1, 2,] # and so on\n",
        "0xff",
        "-0xFF",
        "1e3",
        "1E+3",
        "-0x0",
        '"\\u00e9\\/"',
        '"\\ud83d\\ude00"',
        "{k(): 1}",
    ),
    *(
        "@2026-01-01T01:00:00+01:00",
        "@2026-01-01T00:00:00.5Z",
        "{_: 1}",
        "$n:int( p( _ ) )",
        "p(\n1,\n2)",
        "<1>()",
    ),
)
"""Texts that are read, but not written so."""


OTHER_JSON: Final[tuple[Any, ...]] = (
    *(
        {"@int": "5"},
        {"@int": "-0x1F"},
        {"@int": "-0"},
        {"@float": "1.5"},
        {"@float": "1e5"},
        {"@float": "-0"},
    ),
    *({"@map": []}, {"@map": [["a", 1]]}, {"@bytes": ""}, {"@time": "2026-01-01T01:00:00.5+01:00"}),
    *({"@": {"@int": "1"}, "fields": []}, {"fields": 1}, {"@float": "5E-324"}, {"@map": [[{"@map": []}, 1]]}),
)
"""JSON that is read, but not written."""

NO_JSON: Final[tuple[Any, ...]] = (
    *({"@int": each} for each in ("", "+1", "01", "1.0", " 1", "1_0", "0x", "1e3", "\u0661", "1" * 641, 1)),
    *({"@float": each} for each in ("", "+1.0", " 1.5", "1_0.5", ".5", "1.", "01.5", "1e999", "-1e999")),
    *({"@float": each} for each in ("NaN", "Infinity", "infinity", "+inf", "-nan", "0x1p3", "\u0661.5", 1.5)),
    *(
        {"@bytes": each}
        for each in ("A", "AP8", "AP9=", "AP8==", "AAAA==", "AA==AAAA", " AP8=", "AP\n8=", "A-_=", 1)
    ),
    *({"@time": each} for each in ("", "2026-01-01", "2026-01-01 00:00:00Z", "2026-01-01T00:00:00", 0)),
    *({"@time": each} for each in ("2026-02-30T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:00:00z")),
    *({"@time": each} for each in ("2026-01-01T00:00:00.1234567Z", "0001-01-01T00:00:00+00:01", "@2026")),
    *({"@map": None}, {"@map": {}}, {"@map": [1]}, {"@map": [[1]]}, {"@map": [[1, 2, 3]]}),
    {"@map": [[1, 2], [1, 3]]},
    *(
        {"@": "p"},
        {"@": "p", "fields": {}},
        {"@": "p", "fields": [], "more": 1},
        {"@nonsense": 1},
        {"a": 1, "@b": 2},
    ),
    *({"@int": "1", "@float": "1"}, "\ud800", {"\ud800": 1}, ["\udfff"], _nested(65)),
)
"""JSON that is no value's."""


def values() -> Vectors:
    """Returns the vectors of values."""
    return {
        "values": [
            {"text": unparse(each), "bytes": pack(each).hex(), "json": plain(each)} for each in VALUES
        ],
        "also": [
            *({"bytes": each, "json": plain(unpack(bytes.fromhex(each)))} for each in LONGER),
            *({"text": each, "json": plain(parse(each))} for each in OTHER_TEXTS),
        ],
        "refused": [*[{"bytes": each} for each in REFUSED], *[{"text": each} for each in NO_TEXTS]],
        "said": [{"json": each, "text": unparse(from_json(each))} for each in OTHER_JSON],
        "unsaid": [{"json": each} for each in NO_JSON],
    }


# -- patterns -----------------------------------------------------------------------------------------

MATCHING: Final = (
    ("_", ["null", "1", "p()"]),
    ("p(_)", ["p()", "p(1)", "p(1, 2)", "q(1)", "[1]"]),
    ("p()", ["p()", "p(1, 2)", "q()"]),
    ("_:int", ["1", "true", "1.0", "18446744073709551616"]),
    ("_:float", ["1", "1.0", "nan"]),
    ("_:null", ["null", "false"]),
    ("_:str", ['"a"', 'b"a"']),
    ("_:bytes", ['b"a"', '"a"']),
    ("_:bool", ["true", "1"]),
    ("_:time", ["@2026-01-01T00:00:00Z", "0"]),
    ("_:record", ["p()", "[]", "{}"]),
    ("_:seq", ["[]", "p()"]),
    ("_:map", ["{}", "{1: 2}", "[]"]),
    ("$n:int", ["1", '"a"']),
    ("$(p($))", ["p(1)", "p(1, 2)", "p()"]),
    ("$p:record(point($x, _))", ["point(1, 2)", "point(1)"]),
    ("lit(says($who, _))", ["says($who, _)", 'says("a", "b")']),
    ("lit(_)", ["_", "1"]),
    ("p(1)", ["p(1)", "p(1.0)", "p(true)"]),
    ("exact(p(1))", ["p(1)", "p(1, 2)"]),
    ("exact([1, [2]])", ["[1, [2, 3]]", "[1, [2], 3]"]),
    ("exact({})", ["{}", '{"a": 1}']),
    ("[1]", ["[1, 2]", "[]", "[2]", "<1>(1)"]),
    ('{"a": _}', ['{"a": 1, "b": 2}', '{"b": 2}']),
    ('{"b": $b, "a": $a}', ['{"a": 1, "b": 2}', '{"a": 1}']),
    ("{1: $one, 1.0: $float}", ["{1: 1, 1.0: 2, true: 3}", "{1: 1}"]),
    ("p($x, $x)", ["p(1, 1)", "p(1, true)", "p(nan, nan)", "p(0.0, -0.0)"]),
    ("p($x, [$x, $y], $y)", ["p(1, [1, 2], 2)", "p(1, [2, 2], 2)", "p(1, [1, 2], 3)"]),
    ("p($a($b($c)))", ["p(1)"]),
    ("-0.0", ["-0.0", "0.0", "0"]),
    ("nan", ["nan", "inf"]),
    ("@2026-01-01T00:00:00Z", ["@2026-01-01T01:00:00+01:00", "@2026-01-01T00:00:00.000001Z"]),
    ("<p(1)>($)", ["<p(1)>(2)", "<p(1.0)>(2)", "p(2)"]),
    ("$user-2(_:str)", ['"a"', "1"]),
)
"""Patterns, and values that are held against each."""


def patterns() -> Vectors:
    """Returns the vectors of patterns."""
    return {"patterns": [_pattern(parse(each), list(map(parse, held))) for each, held in MATCHING]}


def _pattern(pattern: Value, held: Sequence[Value]) -> Json:
    match = matcher(pattern)
    return {
        "text": unparse(pattern),
        "bytes": pack(pattern).hex(),
        "json": plain(pattern),
        "names": list(capture_names(pattern)),
        "against": [
            {"json": plain(each), "captures": None if (row := match(each)) is None else plain(row)}
            for each in held
        ],
    }


FILES: Final = {"values.json": values, "patterns.json": patterns}
"""The recorded files, and what makes each."""


def written(vectors: Vectors) -> str:
    """Returns the text of a file: one vector on each line, so that a change shows in a diff."""
    lists = ((name, each) for name, each in vectors.items() if isinstance(each, list))
    parts = [f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, each)) + "\n]" for name, each in lists]
    return "{\n" + ",\n".join(parts) + "\n}\n"
