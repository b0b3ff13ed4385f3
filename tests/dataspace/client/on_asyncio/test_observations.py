"""Under asyncio as under trio: whole epochs, over connections that are cut."""

from __future__ import annotations

from tests.dataspace.client import test_observations as under_trio
from tests.dataspace.client.on_asyncio.runs import under_asyncio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_a_large_epoch_is_shown_when_it_is_whole",
            "test_an_abort_is_confirmed_or_said_again",
            "test_credit_is_asked_for_as_it_is_read",
            "test_what_was_held_at_a_cut_is_read_and_counts_against_the_new_credit",
        ],
    )
)
