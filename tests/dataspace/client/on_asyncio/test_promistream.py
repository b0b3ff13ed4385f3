"""Under asyncio as under trio: the rules of Promistream."""

from __future__ import annotations

from tests.dataspace.client.on_asyncio.runs import under_asyncio
from tests.dataspace.streams import test_promistream as under_trio

globals().update(
    under_asyncio(
        under_trio,
        quick=[
            "test_values_marks_and_errors_come_in_the_order_of_the_reads",
            "test_a_reservation_is_given_back_by_a_reader_who_goes_away",
        ],
    )
)
