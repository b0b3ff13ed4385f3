"""A pattern says which columns there are; a given schema may choose among them, and no more."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from dataspace.errors import UsageError
from index.patterns.text import parse_pattern
from relay.spark.common.schema import CHANGES, capture_classes, columns, inferred, is_json
from tests.relay.spark.schemas import ddl

EVERY = "p($s:str, $i:int, $f:float, $b:bool, $y:bytes, $t:time)"


def test_each_atom_class_has_its_type() -> None:
    assert inferred(EVERY).simpleString() == (
        "struct<s:string,i:bigint,f:double,b:boolean,y:binary,t:timestamp,"
        "_change_type:string,_epoch:bigint,_epoch_timestamp:timestamp,_seq:bigint>"
    )


def test_a_capture_of_anything_becomes_json_and_says_so() -> None:
    schema = inferred("p($x, $r:record)")
    assert [(field.dataType, is_json(field)) for field in schema.fields[:2]] == [(StringType(), True)] * 2
    assert not is_json(inferred("p($x:str)")["x"])


def test_captures_without_names_are_named_by_their_position_among_all() -> None:
    assert inferred("p($, $n:int, $)").fieldNames()[:3] == ["0", "n", "2"]


def test_captures_come_outer_before_inner_and_a_repeated_one_once() -> None:
    pattern = parse_pattern('p($x, [$y:int, $x], {"k": $z:str}, $all(q($in)), lit($no), $x)')
    assert [name for name, _ in capture_classes(pattern)] == ["x", "y", "z", "all", "in"]


def test_a_pattern_without_captures_has_the_reserved_columns() -> None:
    assert inferred("p(_)").fieldNames() == list(CHANGES)


def test_a_pattern_that_does_not_parse_is_pointed_at() -> None:
    with pytest.raises(UsageError, match="option pattern") as caught:
        inferred("p($")
    assert "^" in str(caught.value)


@pytest.mark.parametrize("pattern", ["p($a, $A)", "p($_epoch)", "p($_SEQ:int)"])
def test_names_that_spark_could_not_tell_apart_are_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="cannot be told from column"):
        inferred(pattern)


def test_a_given_schema_chooses_columns_in_its_own_order() -> None:
    chosen = columns(EVERY, ddl("_seq bigint, i int, s string"))
    assert [(column.name, column.capture) for column in chosen.all] == [("_seq", None), ("i", 1), ("s", 0)]
    assert chosen.arrow.names == ["_seq", "i", "s"]


def test_a_given_schema_types_captures_that_have_no_class() -> None:
    (column,) = columns("p($x)", ddl("x double")).all
    assert column.holds(1.5) and column.holds(None)
    assert not column.holds(1) and not column.holds("1.5") and not column.holds(True)


def test_a_smaller_integer_holds_what_fits_in_it() -> None:
    (column,) = columns("p($i:int)", ddl("i smallint")).all
    assert column.holds(32767) and not column.holds(32768) and not column.holds(True)


def test_a_column_that_the_pattern_does_not_make_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="column carier is none of the pattern's, did you mean carrier"):
        columns("flight($carrier:str)", ddl("carier string"))
    with pytest.raises(UsageError, match=r"column m is none of the pattern's \(it makes n, _change_type, "):
        columns("p($n:int)", ddl("m bigint"))


@pytest.mark.parametrize(
    ("pattern", "schema", "allowed"),
    [
        ("p($x:int)", "x double", "captures int and the schema says double, allowed are .*bigint, string"),
        ("p($x:float)", "x float", "captures float and the schema says float, allowed are double"),
        ("p($x:str)", "x array<int>", "captures str .* allowed are string"),
        ("p($x)", "x date", "allowed are .*timestamp"),
        ("p($x)", "_epoch int", "column _epoch is bigint, the schema says int"),
    ],
)
def test_a_type_that_cannot_hold_the_capture_is_refused(pattern: str, schema: str, allowed: str) -> None:
    with pytest.raises(UsageError, match=allowed):
        columns(pattern, ddl(schema))


def test_the_arrow_schema_is_the_one_that_spark_expects() -> None:
    made = columns("p($n:int)", StructType([StructField("n", LongType(), False)])).arrow
    assert str(made.field("n").type) == "int64" and not made.field("n").nullable
