"""Intervals: columns of neighbouring ranges joined, with the epochs from and until which facts held.

In a merged range each insertion has ``_until``, the epoch of the deletion that ended the fact, and each
deletion ``_since``, the epoch of its insertion; null where that is not in the range.  So the facts after an
epoch are found without a join.  Rows of one label at a time are in memory.

Always: a fact is known by its exact value, ``fK`` and ``fK_other`` together; rows keep epoch and position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from relay.archive.columns import (
    ERASED,
    MANY_ROWS,
    ColumnObject,
    Types,
    arrow_module,
    classes_in,
    classes_of,
    is_folder,
    label_table,
    own_kinds,
    settled_anew,
    with_classes,
    written,
)

EPOCH: Final = "_epoch"
SINCE: Final = "_since"
UNTIL: Final = "_until"
SINCE_TIME: Final = "_since_timestamp"

_FIELD: Final = re.compile(r"f\d+(_other)?")

Clusters = Mapping[str, Sequence[int]]
"""By labels the fields that their rows are ordered by in merged ranges."""


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """An object of columns to be merged: its label and number of fields, and what reads its content.

    ``is_state`` is true for facts that held before the changes begin.
    """

    label: str | None
    arity: int
    read: Callable[[], bytes]
    is_state: bool = False


Kind = tuple[str | None, int]
"""A label and a number of fields; None and -1 for all other rows."""


class GatheredRows:
    """The rows of several ranges, or of a state and the ranges after it, by label and number of fields.

    ``settled`` are the classes of fields that were not settled before, or are settled anew.
    """

    def __init__(
        self,
        parts: Sequence[Sequence[ColumnPart]],
        types: Types,
        may_change: Callable[[Kind, str], bool] = lambda *_: False,
    ) -> None:
        """``parts`` has the objects of each range, in order; reads the objects of all other rows now.

        ``may_change`` is asked whether the fields of a kind may get other classes.
        """
        self.settled: Final[dict[str, str]] = {}
        self._may_change = may_change
        self._types = types
        self._parts: dict[Kind, list[ColumnPart]] = {}
        for each in parts:
            for part in each:
                self._parts.setdefault((part.label, part.arity), []).append(part)
        rest = [_table(part) for part in self._parts.pop((None, -1), [])]
        self._rest = _joined(rest) if rest else None
        self._own = self._own_labels()
        self._moved = self._rest_of_own()

    def kinds(self) -> list[Kind]:
        """Returns what there are rows of, in the order of objects in a range."""
        found = sorted({*self._parts, *self._moved}, key=itemgetter(0, 1))
        rest: list[Kind] = [] if self._rest is None or not self._rest.num_rows else [(None, -1)]
        return [*found, *rest]

    def classes(self, kind: Kind) -> str:
        """Returns the class of each field."""
        name = f"{kind[0]}/{kind[1]}"
        return "" if kind[0] is None else self.settled.get(name) or self._types.get(name, "")

    def table(self, kind: Kind) -> Any:
        """Returns the rows of a kind in the order of the log, without intervals; settles its classes anew.

        Only rows of a state have ``_since``: 0 where that is not known.
        """
        if kind[0] is None:
            return self._rest
        known = self.classes(kind)
        tables = [_table(part) for part in self._parts.get(kind, [])]
        found = [(table, classes_in(table)) for table in tables]
        if kind in self._moved:
            found.append((label_table(self._moved[kind], known), known))
        classes = settled_anew(found, known)
        if classes != known and self._may_change(kind, classes):
            self.settled[f"{kind[0]}/{kind[1]}"] = known = classes
        return _joined([with_classes(table, now, known) for table, now in found])

    def _own_labels(self) -> set[str]:
        """Returns the labels that have objects of their own in a range, or have many rows by now."""
        own = {label for label, _ in self._parts if label is not None}
        if self._rest is None or not self._rest.num_rows:
            return own
        spelled = {label.lower(): label for label in own}
        for name in self._types:
            spelled.setdefault(name.rpartition("/")[0].lower(), name.rpartition("/")[0])
        counts = self._rest.column("label").value_counts().to_pylist()
        for entry in sorted(counts, key=lambda entry: (-entry["counts"], entry["values"] or "")):
            label = entry["values"]
            is_fit = label is not None and entry["counts"] >= MANY_ROWS and is_folder(label)
            if is_fit and spelled.setdefault(label.lower(), label) == label:
                own.add(label)
        return own

    def _rest_of_own(self) -> dict[Kind, Any]:
        """Takes the rows that are to be in objects of their own out of the other rows; returns them."""
        if self._rest is None or not self._own:
            return {}
        arrow, compute = arrow_module(), _compute()
        is_own = compute.is_in(self._rest.column("label"), value_set=arrow.array(sorted(self._own)))
        moving, held = self._rest.filter(is_own), self._rest.filter(compute.invert(is_own))
        rows = moving.append_column("row", arrow.array(range(moving.num_rows), arrow.int64()))
        grouped = rows.group_by(["label", "arity"]).aggregate([("row", "list")]).to_pylist()
        found = {(each["label"], each["arity"]): each["row_list"] for each in grouped}
        own = own_kinds({kind: len(places) for kind, places in found.items()}) | self._parts.keys()
        moved: dict[Kind, Any] = {}
        for kind in sorted(found.keys() & own):
            moved[kind] = moving.take(arrow.array(sorted(found[kind]), arrow.int64()))
            if f"{kind[0]}/{kind[1]}" not in self._types:
                self.settled[f"{kind[0]}/{kind[1]}"] = classes_of(moved[kind])
        stays = sorted([place for kind, places in found.items() if kind not in own for place in places])
        left = moving.take(arrow.array(stays, arrow.int64()))
        self._rest = _in_order(arrow.concat_tables([held, left]).combine_chunks()) if stays else held
        return moved


def merged(
    gathered: GatheredRows, clusters: Clusters, state: int
) -> Iterator[tuple[ColumnObject | None, ColumnObject | None]]:
    """Yields the objects of the columns of a merged range, each with the object of the state before it.

    ``state`` is the epoch of the state that was gathered, if any; some 1 µs a row.
    """
    compute = _compute()
    for kind in gathered.kinds():
        table = gathered.table(kind)
        since, until = intervals(table)
        order = tuple([at for at in clusters.get(kind[0] or "", ()) if at < kind[1]])
        facts = None
        if SINCE in table.column_names:
            is_change = compute.is_null(table.column(SINCE).combine_chunks())
            facts = table.append_column(UNTIL, until).filter(compute.invert(is_change))
            since = compute.if_else(compute.greater(since, state), since, None).filter(is_change)
            until, table = until.filter(is_change), table.filter(is_change)
            table = table.drop_columns([SINCE, SINCE_TIME])
        table = table.append_column(SINCE, since).append_column(UNTIL, until)
        yield _changes(gathered, kind, table, order), _facts(gathered, kind, facts, order)


def _changes(gathered: GatheredRows, kind: Kind, table: Any, order: tuple[int, ...]) -> ColumnObject | None:
    if not table.num_rows:
        return None
    counts = {
        each["values"]: each["counts"]
        for each in _compute().value_counts(table.column("_change_type")).to_pylist()
    }
    net = counts.get("insert", 0) - counts.get("delete", 0)
    return written(_clustered(table, order), *kind, gathered.classes(kind), net=net, order=order)


def _facts(gathered: GatheredRows, kind: Kind, table: Any, order: tuple[int, ...]) -> ColumnObject | None:
    """Returns the object of a state, whose rows are numbered in the order that they have."""
    if table is None or not table.num_rows:
        return None
    arrow = arrow_module()
    table = _clustered(table, order)
    unknown = _compute().equal(table.column(SINCE), 0)
    since = _compute().if_else(unknown, arrow.scalar(None, arrow.int64()), table.column(SINCE))
    table = _numbered(table.set_column(table.column_names.index(SINCE), SINCE, since))
    return written(table, *kind, gathered.classes(kind), net=table.num_rows, order=order)


def _clustered(table: Any, order: Sequence[int]) -> Any:
    if not order:
        return table
    keys = [*[(f"f{at}", "ascending") for at in order], (EPOCH, "ascending"), ("_seq", "ascending")]
    return table.take(_compute().sort_indices(table, sort_keys=keys))


def recast(
    content: bytes, kind: Kind, classes: str, order: tuple[int, ...], *, is_state: bool
) -> ColumnObject:
    """Returns an object with the same rows, whose fields have other classes."""
    from pyarrow import BufferReader, parquet

    table = parquet.read_table(BufferReader(content))
    table = _clustered(with_classes(table, classes_in(table), classes), order)
    if is_state:
        table = _numbered(table)
    return written(table, *kind, classes, order=order)


def _numbered(table: Any) -> Any:
    arrow = arrow_module()
    places = arrow.array(range(table.num_rows), arrow.int32())
    return table.set_column(table.column_names.index("_seq"), "_seq", places)


def facts_after(gathered: GatheredRows, epoch: int, time: int) -> Iterator[ColumnObject]:
    """Yields the objects of the state after all gathered rows, with its epoch and time; some 1 µs a row.

    ``_since`` is the epoch of each fact's insertion, null where that is before the first known state.
    """
    arrow, compute = arrow_module(), _compute()
    for kind in gathered.kinds():
        table = gathered.table(kind)
        _, until = intervals(table)
        is_insert = compute.equal(table.column("_change_type").combine_chunks(), "insert")
        holds = compute.and_(compute.and_(is_insert, _is_fact(table)), compute.is_null(until))
        table = table.filter(holds)
        since, at = table.column(EPOCH), table.column("_epoch_timestamp")
        if SINCE in table.column_names:
            is_new = compute.is_null(table.column(SINCE))
            since = compute.if_else(is_new, since, table.column(SINCE))
            at = compute.if_else(is_new, at, table.column(SINCE_TIME))
            table = table.drop_columns([SINCE, SINCE_TIME])
        count = table.num_rows
        when = arrow.array([time], arrow.int64()).cast(arrow.timestamp("us", tz="UTC"))[0]
        for name, column in (
            (EPOCH, arrow.repeat(epoch, count)),
            ("_epoch_timestamp", arrow.repeat(when, count)),
        ):
            table = table.set_column(table.column_names.index(name), name, column)
        table = table.append_column(SINCE, since).append_column(SINCE_TIME, at)
        made = _facts(gathered, kind, table, ())
        if made is not None:
            yield made


def intervals(table: Any) -> tuple[Any, Any]:
    """Returns ``_since`` and ``_until`` of rows in the order of the log; O(rows), some 0.5 µs each.

    A fact's rows alternate between insertions and deletions, so each belongs to the next.
    """
    arrow, compute = arrow_module(), _compute()
    count = table.num_rows
    kinds = table.column("_change_type").combine_chunks()
    is_fact = _is_fact(table)
    places = compute.indices_nonzero(is_fact).cast(arrow.int64())
    facts = arrow.table({"row": places, "one": arrow.repeat(0, len(places))})  # a fact may have no fields
    for name in filter(_is_key, table.column_names):
        facts = facts.append_column(name, table.column(name).take(places))
    names = [name for name in facts.column_names if name != "row"]
    lists = facts.group_by(names, use_threads=False).aggregate([("row", "list")]).column("row_list")
    lists = lists.combine_chunks() if len(lists) else arrow.array([], arrow.list_(arrow.int64()))
    rows, fact = lists.flatten(), compute.list_parent_indices(lists)
    epochs = table.column(EPOCH).combine_chunks().take(rows)
    none = arrow.array([None], arrow.int64())
    if len(rows):
        same = compute.equal(fact.slice(1), fact.slice(0, len(fact) - 1))
        following = compute.if_else(same, epochs.slice(1), None)
        before = compute.if_else(same, epochs.slice(0, len(epochs) - 1), None)
        following, before = arrow.concat_arrays([following, none]), arrow.concat_arrays([none, before])
    else:
        following = before = arrow.array([], arrow.int64())
    at = arrow.concat_arrays([rows, compute.indices_nonzero(compute.invert(is_fact)).cast(arrow.int64())])
    back = compute.sort_indices(at)
    nothing = arrow.nulls(count - len(rows), arrow.int64())
    following = arrow.concat_arrays([following, nothing]).take(back)
    before = arrow.concat_arrays([before, nothing]).take(back)
    since = compute.if_else(compute.equal(kinds, "delete"), before, None)
    until = compute.if_else(compute.equal(kinds, "insert"), following, None)
    return since, until


def _is_fact(table: Any) -> Any:
    """Returns which rows are changes of facts: no messages, and no erased ones."""
    compute = _compute()
    found = compute.not_equal(table.column("_change_type").combine_chunks(), "message")
    if "label" in table.column_names:
        erased = compute.and_(
            compute.equal(table.column("label").combine_chunks(), ERASED),
            compute.equal(table.column("arity").combine_chunks(), 0),
        )
        found = compute.and_(found, compute.invert(compute.fill_null(erased, fill_value=False)))
    return found


def _is_key(name: str) -> bool:
    return name in ("label", "arity", "value") or _FIELD.fullmatch(name) is not None


def _table(part: ColumnPart) -> Any:
    """Returns the rows of an object without intervals; of a state with ``_since``, 0 if that is not known."""
    from pyarrow import BufferReader, parquet

    table = parquet.read_table(BufferReader(part.read()))
    dropped = (UNTIL,) if part.is_state else (SINCE, UNTIL)
    table = table.drop_columns([name for name in dropped if name in table.column_names])
    if part.is_state:
        at = table.column_names.index(SINCE)
        table = table.set_column(at, SINCE, _compute().fill_null(table.column(SINCE), 0))
    return table


def _joined(tables: Sequence[Any]) -> Any:
    """Returns the rows of several tables in the order of the log; fields without ``fK_other`` get one."""
    arrow = arrow_module()
    plain = [table.replace_schema_metadata(None) for table in tables]
    whole = arrow.concat_tables(plain, promote_options="default").combine_chunks()
    fields = sorted([name for name in whole.column_names if _FIELD.fullmatch(name)], key=_field_place)
    fields = [name for name in fields if whole.column(name).null_count < whole.num_rows or "_" not in name]
    others = [name for name in whole.column_names if not _FIELD.fullmatch(name)]
    return _in_order(whole.select([*others[:4], *fields, *others[4:]]))


def _in_order(table: Any) -> Any:
    """Returns rows in the order of the log; O(rows) if they are in it."""
    compute = _compute()
    epochs, places = table.column(EPOCH).combine_chunks(), table.column("_seq").combine_chunks()
    last = max(0, len(epochs) - 1)
    later = compute.greater(epochs.slice(1), epochs.slice(0, last))
    same = compute.equal(epochs.slice(1), epochs.slice(0, last))
    further = compute.greater(places.slice(1), places.slice(0, last))
    if compute.all(compute.or_(later, compute.and_(same, further)), min_count=0).as_py():
        return table
    keys = [(EPOCH, "ascending"), ("_seq", "ascending")]
    return table.take(compute.sort_indices(table, sort_keys=keys))


def _field_place(name: str) -> tuple[int, bool]:
    number, _, other = name[1:].partition("_")
    return int(number), bool(other)


def _compute() -> Any:
    from pyarrow import compute

    return compute
