"""Values of every kind, for laws about them."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

from index.values.freezing import freeze
from index.values.values import Map, Record, Value, key

atoms: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.binary(max_size=8),
    st.datetimes(
        min_value=datetime(1970, 1, 1),
        max_value=datetime(2200, 1, 1),
        timezones=st.just(UTC),
    ).map(freeze),
)


def distinct(pairs: list[tuple[Value, Value]]) -> list[tuple[Value, Value]]:
    """The pairs without those whose key comes again.

    ``unique_by`` would do, but it rejects, and hypothesis then describes this nested strategy at length.
    """
    return list({key(pair[0]): pair for pair in pairs}.values())


def compounds(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    """Sequences, records and maps of what is given."""
    return st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.builds(lambda label, fields: Record(label, *fields), inner, st.lists(inner, max_size=3)),
        st.lists(st.tuples(inner, inner), max_size=3).map(distinct).map(Map),
    )


values: st.SearchStrategy[Value] = st.recursive(atoms, compounds, max_leaves=8)
