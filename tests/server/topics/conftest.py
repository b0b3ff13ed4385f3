"""A law of all tests here: what the loop changes of a topic, no thread walks through."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from relay.topics.steps import StepLog

WALKS = ("begun_at_or_after", "tail", "lowers", "first_open", "first_needed", "dump", "named")
"""Methods of a step log that iterate over what changes with each step."""


@pytest.fixture(autouse=True)
def _memory_is_read_by_the_loop_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a step in this moment makes an error of it, or half an answer; seldom enough to be missed."""

    def here(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def checked(*arguments: Any, **named: Any) -> Any:
            where = threading.current_thread()
            assert where is threading.main_thread(), f"{method.__qualname__} in {where.name}"
            return method(*arguments, **named)

        return checked

    for name in WALKS:
        monkeypatch.setattr(StepLog, name, here(getattr(StepLog, name)))
