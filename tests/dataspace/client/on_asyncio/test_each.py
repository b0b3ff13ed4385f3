"""Under asyncio as under trio: a function is called with each change."""

from __future__ import annotations

from tests.dataspace.client import test_each as under_trio
from tests.dataspace.client.on_asyncio.runs import under_asyncio

visit = under_trio.visit

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_a_cancelled_each_leaves_the_rest_to_the_next_reader",
            "test_a_second_reader_waits_for_its_turn",
            "test_an_asynchronous_function_is_refused",
            "test_an_observation_closed_elsewhere_ends_each",
            "test_what_was_read_before_is_not_passed_again",
        ],
        without=[
            "test_each_sees_what_iteration_sees",  # ten minutes of waiting for tasks to be blocked
            "test_the_function_runs_where_epochs_are_decoded",
        ],
    )
)
