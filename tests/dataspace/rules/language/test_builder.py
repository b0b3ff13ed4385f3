"""Rules written in Python are the rules that their text gives; misuse is caught where it is written."""

from __future__ import annotations

import pytest

from dataspace.rules.language.builder import (
    count,
    fact,
    next_,
    relations,
    send,
    text_of_rules,
    top,
    variables,
    when,
)
from dataspace.rules.language.parser import read_rules
from index.errors import UsageError

x, y, z, n = variables("x y z n")
edge, reach, gone, hub, node = relations("edge reach gone hub node")


def test_what_is_built_is_what_the_text_says() -> None:
    built = [
        reach(x, y) <= edge(x, y),
        reach(x, z) <= reach(x, y) & edge(y, z) & ~gone(z),
        hub(x, count(y)) <= edge(x, y),
        hub("big", top(3, n)) <= hub(x, n) & when(n >= 3) & when(n != x + 1),
        next_(node(x)) <= node(x) & ~reach(x, ...),
        send(node(x)) <= edge(x, edge(..., 7)),
        fact(node(0)),
    ]
    text = text_of_rules(*built)
    assert tuple(built) == read_rules(text)
    assert text.splitlines()[1] == "reach($x, $z) <- reach($x, $y), edge($y, $z), not gone($z)."


def test_misuse_is_refused_with_what_to_write_instead() -> None:
    with pytest.raises(UsageError, match="join with &, negate with ~"):
        bool(reach(x, y))
    with pytest.raises(UsageError, match="join with &, negate with ~"):
        not edge(x, y)
    with pytest.raises(UsageError, match="when"):
        edge(x, n) & (n < 3)
    with pytest.raises(UsageError, match="neither true nor false"):
        when(1 < n < 3)
    with pytest.raises(UsageError, match=r"unsafe rule: \$z in the head"):
        _ = reach(x, z) <= edge(x, y)
    with pytest.raises(UsageError, match=r"unsafe rule: \$z in not gone"):
        _ = reach(x, y) <= edge(x, y) & ~gone(z)
    with pytest.raises(UsageError, match="can be asked for, not made"):
        _ = reach(x, ...) <= edge(x, y)
