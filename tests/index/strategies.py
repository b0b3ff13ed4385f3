"""Values as odd as they come: hard to write, and hard to tell from patterns."""

from __future__ import annotations

import math
from datetime import UTC

from hypothesis import strategies as st

from index.patterns.patterns import ATOM_CLASSES, DISCARD, capture, discard, exact, lit, observe
from index.values.freezing import freeze
from index.values.values import Map, Record, Value
from tests.strategies import atoms, compounds, distinct, values

labels = st.one_of(
    st.sampled_from(
        ["p", "two words", "a-b", "a-", "-a", "a--b", "_", "$", "_a", "lit", "exact", "Observe", "b", "0x1"]
    ),
    st.sampled_from(
        ["", "true", "false", "null", "nan", "inf", "é", "p\n", '"', "\\", "\u202e", "\x1b[2J", "😀"]
    ),
    values,
)
times = st.datetimes(timezones=st.just(UTC)).map(freeze)
odd_atoms: st.SearchStrategy[Value] = st.one_of(
    atoms,
    times,
    st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 1e16, 1e22, 1e-7]),
    st.integers(-(2**4000), 2**4000),
    st.sampled_from([(1 << 2048) - 1, 1 << 2048, -(1 << 2048), 1 << 14_000]),
    st.text(st.characters(exclude_categories=["Cs"])),
)
names = st.one_of(st.none(), st.sampled_from(["who", "n-1", "_x", "_", "true", "b"]))
classes = st.one_of(st.none(), st.sampled_from(sorted(ATOM_CLASSES)))


def pattern_like(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    """Patterns, and records that only look as if they were some."""
    return st.one_of(
        st.builds(discard, classes),
        st.builds(capture, names, classes, inner),
        st.builds(lit, inner),
        st.builds(exact, inner),
        st.builds(observe, inner),
        st.builds(lambda label, fields: Record(label, *fields), labels, st.lists(inner, max_size=3)),
        st.builds(lambda name, of_class, sub: Record("$", name, of_class, sub), odd_atoms, odd_atoms, inner),
        st.builds(lambda of_class: Record("_", of_class), odd_atoms),
    )


anything: st.SearchStrategy[Value] = st.recursive(
    odd_atoms, lambda inner: st.one_of(compounds(inner), pattern_like(inner)), max_leaves=10
)
"""Values of all kinds, many of which are patterns or nearly are."""

patterns: st.SearchStrategy[Value] = st.recursive(
    st.one_of(
        odd_atoms, st.builds(discard, classes), st.builds(capture, names, classes), st.builds(lit, anything)
    ),
    lambda inner: st.one_of(
        st.builds(capture, names, classes, inner),
        st.builds(lambda fields: Record("p", *fields), st.lists(inner, max_size=3)),
        st.builds(lambda fields: exact(Record("p", *fields)), st.lists(inner, max_size=3)),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(st.tuples(odd_atoms, inner), max_size=3).map(distinct).map(Map),
    ),
    max_leaves=10,
)
"""Patterns that ``skeleton`` accepts."""


def values_near(pattern: Value, otherwise: st.SearchStrategy[Value] = anything) -> st.SearchStrategy[Value]:
    """Values that a pattern matches, or would but for a little; now and then anything."""
    return st.one_of(_fitting(pattern, otherwise), _fitting(pattern, otherwise), otherwise)


def _fitting(pattern: Value, otherwise: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    match pattern:
        case Record(label="_"):
            return otherwise
        case Record(label="$", fields=(_, _, sub)):
            return otherwise if sub == DISCARD else _fitting(sub, otherwise)
        case Record(label="lit", fields=(value,)):
            return st.just(value)
        case Record(label="exact", fields=(sub,)):
            return _fitting(sub, otherwise)
        case Record(label=label, fields=fields):
            return _parts(fields, otherwise).map(lambda parts: Record(label, *parts))
        case tuple():
            return _parts(pattern, otherwise).map(tuple)
        case Map():
            near = [st.tuples(st.just(at), _fitting(sub, otherwise)) for at, sub in pattern.pairs()]
            return st.tuples(*near).map(Map)
    return st.one_of(st.just(pattern), st.just(pattern), st.just(pattern), otherwise)


def _parts(
    patterns: tuple[Value, ...], otherwise: st.SearchStrategy[Value]
) -> st.SearchStrategy[list[Value]]:
    """As many parts as patterns, or one more, or one less."""
    more = st.sampled_from([[], [], [1], None])
    near = st.tuples(*[_fitting(pattern, otherwise) for pattern in patterns]).map(list)
    return st.tuples(near, more).map(lambda drawn: drawn[0][:-1] if drawn[1] is None else drawn[0] + drawn[1])
