"""What is written is read back the same, and what says nothing is refused where it goes wrong."""

from __future__ import annotations

import json
import math
import pickle
import re
from datetime import UTC, datetime
from importlib.resources import files
from typing import NamedTuple

import pytest
from hypothesis import example, given, strategies as st

from index import errors
from index.errors import UsageError
from index.patterns.patterns import capture, discard, exact, lit, observe
from index.patterns.text import MAX_DEPTH, ParseError, Reader, parse, parse_pattern, unparse, unparse_pattern
from index.values.freezing import freeze
from index.values.jsons import from_json, to_json
from index.values.values import DEEPEST, Map, Record, Value, same, text_of
from tests.index.strategies import anything, patterns

# -- round trips --------------------------------------------------------------------------------------


@given(anything)
def test_every_value_comes_back_from_its_text(value: Value) -> None:
    assert same(parse(unparse(value)), value)


@given(patterns)
def test_every_pattern_comes_back_from_its_text(pattern: Value) -> None:
    assert same(parse_pattern(unparse_pattern(pattern)), pattern)
    assert same(parse(unparse(observe(pattern))), observe(pattern))


@given(anything, anything)
def test_different_values_have_different_texts(one: Value, other: Value) -> None:
    assert (unparse(one) == unparse(other)) is same(one, other)


@given(anything)
def test_a_text_is_one_line_that_a_terminal_shows_as_it_is(value: Value) -> None:
    assert unparse(value).isprintable()


@given(anything)
def test_blanks_and_comments_may_stand_wherever_commas_do(value: Value) -> None:
    text = unparse((value, value))
    spaced = f'\t# one "(\n {text[:-1]}\r\n,# two\n] # three'
    assert same(parse(spaced), parse(text))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('ab@\\" é', max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_values, st.booleans())
def test_every_json_text_is_the_text_of_the_same_value(said: object, ascii_only: bool) -> None:
    assert same(parse(json.dumps(said, ensure_ascii=ascii_only)), freeze(said))


# -- the forms ----------------------------------------------------------------------------------------


def p(*fields: object) -> Record:
    return Record("p", *fields)


WRITTEN: list[tuple[str, object]] = [
    ('present("Alice")', Record("present", "Alice")),
    ('reading("d1", 21.5, [1, 2], {"k": null})', Record("reading", "d1", 21.5, [1, 2], {"k": None})),
    ("[true, false, null]", (True, False, None)),
    ("[nan, inf, -inf, -0.0, 0.0, 0]", (math.nan, math.inf, -math.inf, -0.0, 0.0, 0)),
    ("[1e+22, 1e-07, -2.5]", (1e22, 1e-07, -2.5)),
    (f"[{2**100}, {-(2**100)}]", (2**100, -(2**100))),
    ("0x1" + "0" * 512, 1 << 2048),
    ("-0x1" + "0" * 512, -(1 << 2048)),
    (r'"say \"hi\" \\ \n\r\t\b\f"', 'say "hi" \\ \n\r\t\b\f'),
    (r'"é 😀 \u0000\u001b\u007f\u00a0\u202e\udb40\udc01"', "é 😀 \x00\x1b\x7f\xa0\u202e\U000e0001"),
    (r'b"A\"\\\n\r\t\x00\xff"', b'A"\\\n\r\t\x00\xff'),
    ("@2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
    ("@0001-01-01T00:00:00.000001Z", datetime(1, 1, 1, microsecond=1, tzinfo=UTC)),
    ("@9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    ("[]", ()),
    ("{}", Map()),
    ('{true: 1, 2: 3, "k": {}, [1]: 4, p(): 5}', Map([(True, 1), (2, 3), ("k", Map()), ((1,), 4), (p(), 5)])),
    ("p()", p()),
    ("sensor-1(a-b(), _c())", Record("sensor-1", Record("a-b"), Record("_c"))),
    ('"two words"(""(), "a-"(), "é"())', Record("two words", Record(""), Record("a-"), Record("é"))),
    ('"true"("null"())', Record("true", Record("null"))),
    ('<1>("x", <true>(), <p(1)>(<[]>()))', Record(1, "x", Record(True), Record(p(1), Record(())))),
    ("b(nan-1())", Record("b", Record("nan-1"))),
    ("says($who, _)", Record("says", capture("who"), discard())),
    ("Observe(says($who, _))", observe(Record("says", capture("who"), discard()))),
    ("[_, _:str]", (discard(), discard("str"))),
    ("[$, $n, $n:int, $:seq]", (capture(), capture("n"), capture("n", "int"), capture(None, "seq"))),
    ("$p(point($, _))", capture("p", None, Record("point", capture(), discard()))),
    ("$p:record(point($))", capture("p", "record", Record("point", capture()))),
    ("$($:map({1: $x}))", capture(None, None, capture(None, "map", Map([(1, capture("x"))])))),
    ("lit(p($x))", lit(p(capture("x")))),
    ("exact(p($))", exact(p(capture()))),
    ("{$x: 2, _: 1}", Map([(discard(), 1), (capture("x"), 2)])),
    ('"_"(1)', Record("_", 1)),
    ('"_"("nothing")', Record("_", "nothing")),
    ('"_"("str", 1)', Record("_", "str", 1)),
    ('"$"()', Record("$")),
    ('"$"("two words", null, _)', Record("$", "two words", None, discard())),
    ('"$"("x", "nothing", _)', Record("$", "x", "nothing", discard())),
    ('"$"(1, null, _)', Record("$", 1, None, discard())),
    ("<_>(1)", Record(discard(), 1)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "thing"), WRITTEN, ids=[text[:40] for text, _ in WRITTEN])
def test_a_form_is_read_and_written(text: str, thing: object) -> None:
    value = freeze(thing)
    assert text_of(parse(text)) == text_of(value)
    assert unparse(value) == text


READ: list[tuple[str, object]] = [
    (" [ 1 ,2, ] ", (1, 2)),
    ("p(\n  1, # one\n  2, # two\n)", p(1, 2)),
    ('{"a":1,}', Map({"a": 1})),
    ("{_:1}", Map([(discard(), 1)])),
    ("{_ :str()}", Map([(discard(), Record("str"))])),
    ("{_:int:1}", Map([(discard("int"), 1)])),
    ("1E5", 1e5),
    ("0xFf", 255),
    ("-0", 0),
    ("1" * 640, int("1" * 640)),
    ("1e-999", 0.0),
    (r'"\u0041\/\ud83d\ude00"', "A/😀"),
    ('"\x7f\u202e"', "\x7f\u202e"),
    (r'b"\x41"', b"A"),
    ("@2026-01-01T01:30:00.5+01:30", datetime(2026, 1, 1, microsecond=500_000, tzinfo=UTC)),
    ("@2025-12-31T23:00:00-01:00", datetime(2026, 1, 1, tzinfo=UTC)),
    ('"p"(1)', p(1)),
    ('<"p">(1)', p(1)),
    ("< 1 >()", Record(1)),
    ('"_"()', discard()),
    ('"$"("x", null, "_"())', capture("x")),
    ("$x(_)", capture("x")),
    ("$true:null( 1 )", capture("true", "null", 1)),
]


@pytest.mark.parametrize(("text", "thing"), READ, ids=[text[:40] for text, _ in READ])
def test_more_is_read_than_is_written(text: str, thing: object) -> None:
    assert text_of(parse(text)) == text_of(freeze(thing))


# -- refusals -----------------------------------------------------------------------------------------

REFUSED = """
expected a value, found the end of the text


^

expected a value, found the end of the text
p(
  ^

expected a value, found ','
[1,,2]
   ^

expected ',' or ')', found the end of the text
p(1
   ^

expected ',' or ']', found '2'
[1 2]
   ^

expected ',' or ']', found ')'
[1)
  ^

expected ':', found '}'
{1}
  ^

expected the end, found 'q'
p(1) q
     ^

expected the end, found '('
[1](2)
   ^

a bare word is no value: text is written "Alice", a record Alice(…)
present(Alice)
        ^

a bare word is no value: text is written "p", a record p(…)
p (1)
^

true is no label: write "true"(…) for the text, <true>(…) for the value
true(1)
^

expected '(' right behind the label, found the end of the text
<1>
   ^

expected '>', found '2'
<1 2>()
   ^

a key that this map already has
{1: 2, 1.0: 3, 1: 4}
               ^

a discard has no fields; a record labelled "_" is written "_"(…)
_(1)
^

'strr' is no class, which are bool, int, float, str, bytes, time, record, seq, map, null
p(_:strr)
    ^

expected ')', found ','
$x(1, 2)
    ^

a string that is not closed by "
p("abc)
  ^

unknown escape '\\\\q'
"a\\q"
  ^

half a surrogate pair is no character
"a\\ud83d\\u0041"
^

half a surrogate pair is no character
"a\\udc00"
^

unknown escape '\\\\u' in bytes
b"a\\u0041"
   ^

bytes are ASCII characters and escapes such as \\xff
b"aé"
   ^

'007' is no number
007
^

expected a value, found '+'
[0, +1]
    ^

'2026-01-01T00:00:00Zulu' is no time, which is written @2026-01-31T23:59:59.5Z
@2026-01-01T00:00:00Zulu
^

'1.2.3' is no number
1.2.3
^

'-nan' is no number
-nan
^

'12abc' is no number
12abc
^

a number beyond the range of a float; infinity is written inf
-1e999
^

'2026-01-01' is no time, which is written @2026-01-31T23:59:59.5Z
@2026-01-01
^

'2026-02-30T00:00:00Z' is no time, which is written @2026-01-31T23:59:59.5Z
[@2026-02-30T00:00:00Z]
 ^

'0001-01-01T00:00:00+01:00' is no time, which is written @2026-01-31T23:59:59.5Z
@0001-01-01T00:00:00+01:00
^

expected a value, found '日'
[ 日本() ]
  ^

a bare word is no value: text is written "x", a record x(…)
["日本", x]
         ^
"""


class Refusal(NamedTuple):
    text: str
    what: str
    caret: str


def refusals() -> list[Refusal]:
    """The table above: complaint, text and caret in turn."""
    blocks = [block.split("\n") for block in REFUSED.strip("\n").split("\n\n") if block != "^"]
    return [Refusal(block[1], block[0], block[2]) for block in blocks if len(block) == 3]


def complaint(text: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize("refusal", refusals(), ids=lambda refusal: refusal.text)
def test_a_refusal_shows_the_line_and_a_caret(refusal: Refusal) -> None:
    error = complaint(refusal.text)
    shown = str(error).split("\n")
    assert error.what == refusal.what
    assert shown[1:] == [f"  {refusal.text}", f"  {refusal.caret}"]
    assert shown[0] == f"{refusal.what} (line 1, column {error.position + 1})"


def test_a_refusal_knows_its_line_and_column() -> None:
    error = complaint('[\n  1, # one\r\n\t"two",\r\n  three]\n')
    assert (error.line, error.column, error.position) == (4, 3, 25)
    assert str(error).split("\n")[1:] == ["    three]", "    ^"]
    assert (complaint("").line, complaint("").column, complaint("").position) == (1, 1, 0)


def test_a_refusal_shows_part_of_a_long_line() -> None:
    shown = str(complaint("[" + "1," * 500 + "?" + ",1" * 500 + "]")).split("\n")
    assert shown[2].index("^") == shown[1].index("?")
    assert len(shown[1]) < 130


def test_a_refusal_shows_nothing_that_a_terminal_obeys() -> None:
    shown = str(complaint('["\x1b[2J", \udc80\x07]'))
    assert shown.replace("\n", "").isprintable()
    assert complaint('"a\tb"').what == r"a control character in a string is written as an escape, \u0009"
    assert complaint('"a\nb"').what == 'a string that is not closed by "'
    assert complaint('"\udc80"').position == 1


def test_a_refusal_survives_being_sent_to_another_process() -> None:
    error = complaint("[1 2]")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.position) == (str(error), error.position)
    assert isinstance(again, UsageError)


@pytest.mark.parametrize(
    ("text", "what", "position"),
    [
        ("p(_, lit(1, 2))", "lit takes one value", 5),
        ('p(lit("_"(1)), lit())', "lit takes one value", 15),
        ("[exact(1)]", "exact takes a record", 1),
        ('{1: "$"(2)}', "a capture has a name", 4),
        ('p("$"("1", null, _))', "the name of a capture is a word", 2),
        ('p("_"(2))', "a discard has at most a class", 2),
        ("[" + "1," * 5000 + "]", "pattern of more than 4096 positions", 0),
    ],
)
def test_a_value_that_is_no_pattern_is_refused_as_one(text: str, what: str, position: int) -> None:
    parse(text)
    with pytest.raises(ParseError, match=what) as caught:
        parse_pattern(text)
    assert caught.value.position == position


# -- hostile texts ------------------------------------------------------------------------------------

PIECES = '"\\()[]{}<>,:_$@#-+.b 01enx\nutrue null inf lit exact p é \ud800 \x00'


@example("\\")
@given(st.text(st.sampled_from(PIECES)) | st.lists(st.sampled_from(re.split("( )", PIECES))).map("".join))
def test_any_text_gives_a_value_or_a_parse_error(text: str) -> None:
    for read in (parse, parse_pattern):
        try:
            value = read(text)
        except ParseError as error:
            assert 0 <= error.position <= len(text)
            assert str(error).replace("\n", "").isprintable()
        else:
            assert same(parse(unparse(value)), value)


@given(anything, st.data())
def test_a_damaged_text_gives_a_value_or_a_parse_error(value: Value, data: st.DataObject) -> None:
    text = unparse(value)
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, len(text)))
    try:
        parse(text[:at] + data.draw(st.text(PIECES, max_size=2)) + text[end:])
    except ParseError as error:
        str(error)


@pytest.mark.parametrize(
    ("nested", "levels"),
    [
        (lambda n: "[" * n + "]" * n, 0),
        (lambda n: "p(" * n + ")" * n, 0),
        (lambda n: "{1: " * (n - 1) + "{}" + "}" * (n - 1), 0),
        (lambda n: "<" * (n - 1) + "p()" + ">()" * (n - 1), 0),
        (lambda n: "$(" * (n - 1) + "_" + ")" * (n - 1), 0),
        (lambda n: "[" * (n - 1) + "_:str" + "]" * (n - 1), 0),
        (lambda n: "[" * (n - 2) + "$x" + "]" * (n - 2), 0),
    ],
    ids=["sequences", "records", "maps", "labels", "captures", "discard", "capture"],
)
def test_nesting_is_bounded_in_levels_of_the_value(nested, levels) -> None:  # type: ignore[no-untyped-def]
    parse(nested(MAX_DEPTH))
    assert "nested deeper than 64 levels" in str(complaint(nested(MAX_DEPTH + 1)))
    assert parse(nested(3), depth=3) is not None
    with pytest.raises(ParseError, match="nested deeper than 2 levels"):
        parse(nested(3), depth=2)


@pytest.mark.parametrize("opening", ["[", "p(", "{", "{1:", "<", "$(", "lit("])
def test_no_text_exhausts_the_stack(opening: str) -> None:
    with pytest.raises(ParseError, match="nested deeper"):
        parse(opening * 100_000)
    with pytest.raises(ParseError, match=f"nested (deeper than {DEEPEST} levels|too deeply)"):
        parse(opening * 100_000, depth=1_000_000)


def test_no_value_exhausts_the_stack() -> None:
    deep: Value = p()
    for _ in range(100_000):
        deep = Record.of("p", (deep,))
    with pytest.raises(UsageError, match="nested too deeply"):
        unparse(deep)


def test_an_integer_that_python_will_not_write_is_written() -> None:
    for huge in (1 << 100_000, -(1 << 100_000) - 1):
        assert same(parse(unparse(p(huge))), p(huge))


def test_an_integer_of_many_digits_is_read_in_base_16_only() -> None:
    assert "an integer of 641 digits" in complaint("1" * 641).what
    assert parse("0x" + "f" * 100_000) == (1 << 400_000) - 1


# -- reading among other things -----------------------------------------------------------------------


def test_a_reader_reads_values_among_other_things() -> None:
    reader = Reader("reach($x, 1) <- edge($x,-1), not gone($x).")
    assert unparse(reader.value()) == "reach($x, 1)"
    assert reader.accept("<-")
    assert unparse(reader.value()) == "edge($x, -1)"
    reader.expect(",")
    assert reader.accept("not")
    assert unparse(reader.value()) == "gone($x)"
    assert reader.expect(";", ".") == "."
    reader.finish()
    with pytest.raises(ParseError, match=r"expected '<-' or '\.', found the end"):
        reader.expect("<-", ".")


# -- the document -------------------------------------------------------------------------------------

DOCUMENT = files(errors.__package__).joinpath("TEXT.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading of the document, without their ticks."""
    section = DOCUMENT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.split("\n") if line.startswith("| `")]
    return [[cell.strip("` ") for cell in row] for row in rows]


@pytest.mark.parametrize("text", [row[0] for row in table("Values") + table("Patterns")])
def test_the_document_shows_values_as_they_are_written(text: str) -> None:
    assert unparse(parse(text)) in (text, "-255")  # one is shown in base 16


@pytest.mark.parametrize(
    ("text", "long"), [(row[0], row[2]) for row in table("Patterns") if row[2] != "itself"]
)
def test_the_document_tells_what_short_forms_stand_for(text: str, long: str) -> None:
    pattern = parse_pattern(text)
    assert same(parse_pattern(long.replace("…", "$, _")), pattern)


@pytest.mark.parametrize(("text", "said"), [(row[0], row[1]) for row in table("JSON")])
def test_the_document_tells_the_json_of_values(text: str, said: str) -> None:
    assert json.dumps(to_json(parse(text))) == said
    assert same(from_json(json.loads(said)), parse(text))
