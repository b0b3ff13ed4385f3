"""Windows share a budget, grow where they run dry, and are never exceeded by what is under way."""

from __future__ import annotations

from hypothesis import given, strategies as st

from dataspace.wire.windows import ITEM, LEAST, MOST, START, ReceiveBudget, ReceiveWindow


def _opened(budget: ReceiveBudget, items: int | None = None) -> tuple[ReceiveWindow, tuple[int, int]]:
    budget.join()
    window = ReceiveWindow(budget, items)
    return window, window.open()


def test_a_window_begins_small() -> None:
    assert _opened(ReceiveBudget())[1] == (START // ITEM, START)


def _read(window: ReceiveWindow, pieces: int, size: int) -> tuple[int, int] | None:
    """Takes values one by one, all that is asked for in the end."""
    asked = None
    for _ in range(pieces):
        window.consume(1, size)
        asked = window.ask() or asked
    return asked


def test_it_grows_when_it_has_run_dry() -> None:
    """The sender has used up all, and the reader has taken all and waits."""
    window, (_, size) = _opened(ReceiveBudget())
    window.arrive(16, size)
    assert _read(window, 16, size // 16) == (16 + 2 * START // ITEM, size + 2 * START)


def test_it_does_not_grow_while_the_sender_has_some_left() -> None:
    window, (_, size) = _opened(ReceiveBudget())
    window.arrive(8, size // 2)
    assert _read(window, 8, size // 16) == (8 + START // ITEM, size // 2 + START)
    assert window.size == START


def test_it_does_not_grow_for_a_reader_that_always_has_something_to_read() -> None:
    window, (_, size) = _opened(ReceiveBudget())
    window.arrive(16, size)
    for _ in range(10):
        asked = _read(window, 9, size // 16)
        assert asked is not None
        window.arrive(8, size // 2)
        _read(window, 0, 0)
        window.arrive(1, size // 16)
    assert window.size == START


def test_more_streams_make_each_share_smaller() -> None:
    budget = ReceiveBudget(1 << 20)
    windows = [_opened(budget)[0] for _ in range(64)]
    assert sum(window.limits[1] for window in windows) <= 1 << 20
    for _ in range(63):
        budget.leave()
    assert windows[0].limits[1] == START


def test_there_is_always_a_least() -> None:
    budget = ReceiveBudget(1)
    assert [_opened(budget)[1] for _ in range(3)] == [(LEAST // ITEM, LEAST)] * 3


def test_a_fixed_window_stays() -> None:
    window, asked = _opened(ReceiveBudget(), 1)
    assert asked == (1, MOST)
    window.arrive(1, 100)
    assert window.ask() is None
    window.consume(1, 100)
    assert window.ask() == (2, MOST + 100)


def test_what_is_held_counts_against_a_new_stream() -> None:
    window, _ = _opened(ReceiveBudget())
    assert window.open((10, 1000)) == (START // ITEM - 10, START - 1000)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=60),
    st.one_of(st.none(), st.integers(1, 8)),
)
def test_what_is_under_way_is_within_the_window(steps: list[tuple[int, int]], fixed: int | None) -> None:
    """A sender that always uses up its credit and a reader that takes as much as it likes."""
    window, (items, size) = _opened(ReceiveBudget(), fixed)
    sent: list[int] = []
    came = taken = came_bytes = taken_bytes = 0
    for send, take in steps:
        for _ in range(send):
            if came < items and came_bytes < size:
                came, came_bytes = came + 1, came_bytes + 30_000
                window.arrive(1, 30_000)
                sent.append(30_000)
        for _ in range(min(take, len(sent))):
            taken, taken_bytes = taken + 1, taken_bytes + sent.pop()
            window.consume(1, 30_000)
            items, size = window.ask() or (items, size)
        assert came - taken <= window.limits[0]
        assert came_bytes - taken_bytes <= window.limits[1] + 30_000
        assert items > came or size > came_bytes or came > taken, "who has taken all is asked for more"


def test_a_window_of_nothing_asks_for_what_is_wanted_and_no_more() -> None:
    window, (items, _) = _opened(ReceiveBudget(), 0)
    assert (items, window.ask(), window.spent) == (0, None, True)
    window.wanted = 2
    totals = window.ask()
    assert totals is not None and totals[0] == 2
    assert window.allows(2) and not window.allows(3)
    window.arrive(2, 100)
    window.wanted = 0
    window.consume(2, 100)
    assert (window.ask() or (2,))[0] == 2, "what was taken asks for nothing by itself"


def test_a_value_may_overdraw_the_bytes_and_the_next_one_may_not() -> None:
    window, (_, size) = _opened(ReceiveBudget(), 9)
    window.arrive(1, size - 1)
    assert window.allows(1)
    window.arrive(1, size)
    assert window.spent and not window.allows(1)
