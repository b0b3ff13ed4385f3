"""No verb of the Python clients takes an option that it does not know."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Final

import pytest

import dataspace
from dataspace import BlockingSpace, RemoteSpace
from dataspace.client.query.questions import question
from dataspace.client.session.turns import Claim, Draft

KINDS: Final = (RemoteSpace, BlockingSpace, Draft, Claim, dataspace.Observation, dataspace.Publication)
VERBS: Final = [
    pytest.param(verb, id=f"{kind.__name__}.{name}")
    for kind in KINDS
    for name, verb in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_")
]
CONNECTING: Final = (dataspace.connect, dataspace.connect_blocking, dataspace.absent, dataspace.unchanged)


@pytest.mark.parametrize("verb", [*VERBS, *CONNECTING])
def test_no_verb_takes_an_option_that_it_does_not_know(verb: Callable[..., object]) -> None:
    if verb in (RemoteSpace.query, BlockingSpace.query):
        return  # its further options are variables of the text
    if verb.__name__ in ("observe", "live"):
        return  # they look at their names themselves, see test_typed.py and test_live.py
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        inspect.signature(verb).bind_partial(nonsense=1)


def test_a_query_takes_no_variable_that_its_text_has_not() -> None:
    with pytest.raises(dataspace.UsageError, match="nonsense"):
        question("task($n)", {"nonsense": 1})
