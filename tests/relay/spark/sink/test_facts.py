"""Each row of a result is one operation on one fact, and what cannot be a fact is refused beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    VariantType,
    VariantVal,
    YearMonthIntervalType,
)

from dataspace.client.bulk.packed import PackedColumns, unpacked
from dataspace.errors import UsageError
from index.values.values import Map, Record, Value, key
from relay.spark.common.schema import JSON_MARK
from relay.spark.sink.facts import BadRow, FactWriter, Operation
from tests.relay.spark.schemas import ddl

KINDS = (pa.int64(), pa.string(), pa.float64(), pa.string())


def operations(facts: FactWriter, **columns: Sequence[object] | pa.Array) -> list[Operation]:
    return facts.operations(pa.RecordBatch.from_pydict(columns))


def only(template: str, **row: object) -> Value:
    """The fact that a template makes of one row of longs and strings."""
    kinds = {int: "bigint", str: "string", type(None): "string"}
    schema = ddl(", ".join(f"{name} {kinds[type(value)]}" for name, value in row.items()))
    facts = FactWriter(schema, template=template)
    ((verb, fact),) = operations(facts, **{name: [value] for name, value in row.items()})
    assert verb == "assert"
    return fact


def test_a_template_puts_columns_where_it_names_them() -> None:
    assert only("airborne($origin, $n)", n=3, origin="JFK") == Record("airborne", "JFK", 3)
    assert only("p($x, $x)", x=1) == Record("p", 1, 1)


def test_a_template_may_nest_and_hold_constants() -> None:
    assert only('p([1, $x], {"k": $y}, q($x))', x=1, y="a") == Record(
        "p", (1, 1), Map([("k", "a")]), Record("q", 1)
    )
    assert only("p(lit($), $x)", x=1).fields[1:] == (1,)  # type: ignore[union-attr]


def test_a_label_goes_before_all_columns_but_the_reserved_ones() -> None:
    facts = FactWriter(ddl("a string, _epoch bigint, b bigint, _seq bigint"), label="p")
    made = operations(facts, a=["x"], _epoch=[5], b=[1], _seq=[0])
    assert made == [("assert", Record("p", "x", 1))]


def test_the_change_type_decides_what_a_row_does() -> None:
    facts = FactWriter(ddl("a bigint, _change_type string"), label="p")
    kinds = ["insert", "delete", "message", "update_preimage", "update_postimage"]
    made = operations(facts, a=[1] * 5, _change_type=kinds)
    assert [verb for verb, _ in made] == ["assert", "retract", "send", "retract", "assert"]
    assert {fact for _, fact in made} == {Record("p", 1)}


@pytest.mark.parametrize("kind", ["upsert", None])
def test_a_change_type_that_means_nothing_fails_with_the_row(kind: str | None) -> None:
    facts = FactWriter(ddl("a bigint, _change_type string"), label="p")
    with pytest.raises(BadRow, match=r"in \(7, .*allowed are insert"):
        operations(facts, a=[7], _change_type=pa.array([kind], pa.string()))


def test_values_keep_their_class() -> None:
    schema = "i int, f double, b boolean, y binary, t timestamp, a array<timestamp>, n string"
    time = datetime(2026, 1, 1, tzinfo=UTC)
    facts = FactWriter(ddl(schema), label="p")
    made = operations(facts, i=[1], f=[1.0], b=[True], y=[b"y"], t=[time], a=[[time, None]], n=[None])
    assert made == [("assert", Record("p", 1, 1.0, True, b"y", time, (time, None), None))]


def test_a_time_in_another_zone_is_the_same_time_in_utc() -> None:
    facts = FactWriter(ddl("t timestamp"), label="p")
    column = pa.array([datetime(2026, 1, 1, tzinfo=UTC)]).cast(pa.timestamp("us", "Europe/Berlin"))
    ((_, fact),) = facts.operations(pa.RecordBatch.from_arrays([column], ["t"]))
    assert fact == Record("p", datetime(2026, 1, 1, tzinfo=UTC))


def test_a_column_of_json_gives_back_the_value() -> None:
    schema = StructType([StructField("x", StringType(), True, JSON_MARK)])
    made = operations(FactWriter(schema, label="p"), x=['{"@":"r","fields":[1]}'])
    assert made == [("assert", Record("p", Record("r", 1)))]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("p($orign)", r"no column \$orign, did you mean \$origin\? \(there are origin, n\)"),
        ("p($)", r"a \$ without a name"),
        ("p(_, $n)", "_ says nothing"),
        ("p($n", "option template"),
    ],
)
def test_a_template_that_cannot_work_is_refused_when_the_query_starts(template: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        FactWriter(ddl("origin string, n bigint"), template=template)


def test_a_type_without_a_value_form_is_refused_unless_it_is_not_used() -> None:
    months = YearMonthIntervalType()
    for kind, name in (
        (months, "d"),
        (ArrayType(months), "d"),
        (StructType([StructField("a", months)]), "d.a"),
    ):
        schema = StructType([StructField("d", kind), StructField("n", LongType())])
        with pytest.raises(UsageError, match=f"column {name} is interval .*no value of a dataspace: cast it"):
            FactWriter(schema, label="p")
        FactWriter(schema, template="p($n)")


def fields(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def test_dates_and_decimals_are_text() -> None:
    schema = fields(d=DateType(), m=DecimalType(10, 2), t=TimestampNTZType(), a=ArrayType(DateType()))
    facts = FactWriter(schema, template="p($d:str, $m:str, $t, $a)")
    made = facts.operations(
        pa.RecordBatch.from_pydict(
            {
                "d": [date(2026, 11, 27)],
                "m": pa.array([Decimal("-12.50")], pa.decimal128(10, 2)),
                "t": [datetime(2026, 11, 27, 9, 0, 0, 5)],
                "a": [[date(2026, 1, 1), None]],
            }
        )
    )
    text = "2026-11-27T09:00:00.000005"
    assert made == [("assert", Record("p", "2026-11-27", "-12.50", text, ("2026-01-01", None)))]


def test_maps_are_maps_and_structs_are_maps_or_records() -> None:
    kinds = fields(
        m=MapType(StringType(), ArrayType(LongType())),
        s=fields(a=LongType(), b=DateType()),
        r=fields(_label=StringType(), x=DoubleType()),
    )
    facts = FactWriter(kinds, label="p")
    row = pa.RecordBatch.from_pydict(
        {
            "m": pa.array([[("k", [1, None])]], pa.map_(pa.string(), pa.list_(pa.int64()))),
            "s": [{"a": 1, "b": date(2026, 1, 1)}],
            "r": [{"_label": "point", "x": 0.5}],
        }
    )
    fact = Record("p", Map([("k", (1, None))]), Map([("a", 1), ("b", "2026-01-01")]), Record("point", 0.5))
    assert facts.operations(row) == [("assert", fact)]
    ((_, part),) = facts.parts(row)
    assert list(unpacked(part.packed()).operations()) == [("assert", fact)]
    twice = StructType([StructField("a", LongType()), StructField("a", LongType())])
    with pytest.raises(UsageError, match="two fields of one name"):
        FactWriter(fields(s=twice), label="p")


def test_a_variant_is_what_its_json_says() -> None:
    variant = VariantVal.parseJson('{"a": [1, 2.5, null, true], "b": {"c": "x"}}')
    column = pa.array([{"value": variant.value, "metadata": variant.metadata}, None])
    made = FactWriter(fields(v=VariantType()), label="p").operations(
        pa.RecordBatch.from_arrays([column], ["v"])
    )
    inside = made[0][1].fields[0]  # type: ignore[union-attr]  # a record
    assert inside == Map([("a", (1, 2.5, None, True)), ("b", Map([("c", "x")]))])
    assert made[1] == ("assert", Record("p", None))


def test_a_template_without_columns_makes_a_fact_for_each_row() -> None:
    facts = FactWriter(ddl("n bigint"), template="tick()")
    assert operations(facts, n=[1, 2]) == [("assert", Record("tick"))] * 2


rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        st.one_of(st.none(), st.text(max_size=3)),
        st.one_of(st.none(), st.floats(width=64)),
        st.sampled_from(["insert", "delete", "message", "update_preimage", "update_postimage"]),
    ),
    max_size=8,
)


@pytest.mark.parametrize(
    "template",
    [
        "p($n, $s, $x)",
        'p($x, 1, [$n, {"k": $s}], lit($), $n)',
        "exact(p($s))",
        '"lit"($n)',
        "p()",
        "[$n, $s]",
        None,
    ],
)
@given(rows=rows)
def test_by_the_column_rows_mean_what_they_mean_one_by_one(
    template: str | None, rows: list[tuple[int | None, str | None, float | None, str]]
) -> None:
    schema = ddl("n bigint, s string, x double, _change_type string")
    facts = FactWriter(schema, template=template, label=None if template else "lit")
    columns = [[row[at] for row in rows] for at in range(4)]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, KINDS, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema.fieldNames())
    each = facts.operations(batch)
    for retracts, part in facts.parts(batch):
        made = list(part.operations())
        meant = [operation for operation in each if (operation[0] == "retract") is retracts]
        assert [(verb, key(fact)) for verb, fact in made] == [(verb, key(fact)) for verb, fact in meant]
        carried = list(unpacked(part.packed()).operations())
        assert [(verb, key(fact)) for verb, fact in carried] == [(verb, key(fact)) for verb, fact in meant]
    assert sum(len(part) for _, part in facts.parts(batch)) == len(rows)


def test_records_come_by_the_column_and_dead_letters_do_not() -> None:
    facts = FactWriter(ddl("n bigint"), template="p($n:int)", dead_letter="bad")
    ((_, columns),) = facts.parts(pa.RecordBatch.from_pydict({"n": [1, 2]}))
    assert columns == PackedColumns("assert", "p", [[1, 2]], 2)
    ((_, letters),) = facts.parts(pa.RecordBatch.from_pydict({"n": pa.array([1, None], pa.int64())}))
    assert [verb for verb, _ in letters.operations()] == ["assert", "send"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"template": "p($k, $n)"}, r"column \$?who is not in the template, which has k, n: a key is part"),
        ({"template": "p($who)"}, r"no column k, did you mean who|no column k"),
        ({"label": "p"}, "no column whom, did you mean who"),
        ({"label": "p", "key": "_epoch"}, "column _epoch is not part of a fact"),
    ],
)
def test_a_key_that_is_none_is_told_what_could_be_one(given: dict[str, str], said: str) -> None:
    given = dict(given)
    key = given.pop("key", {"p($k, $n)": "who", "p($who)": "k0"}.get(given.get("template", ""), "whom"))
    with pytest.raises(UsageError, match=f"option keyColumns: (?:{said})"):
        FactWriter(ddl("k string, n bigint, who string, _epoch bigint"), keys=[key], **given)  # type: ignore[arg-type]  # template or label


def test_a_key_whose_template_has_captures_without_a_name_is_told_of_them() -> None:
    with pytest.raises(UsageError, match="option template: a \\$ without a name"):
        FactWriter(ddl("k string"), template="p($)", keys=["k"])
