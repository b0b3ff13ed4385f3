"""A thread of one task runs one function after another, and hands back what each has raised."""

from __future__ import annotations

import threading

import pytest
import trio

from relay.store.group_writer import WriteThread


@pytest.fixture
def thread() -> WriteThread:
    return WriteThread("writer of a test")


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "writer of a test"]


async def test_functions_run_in_one_thread_of_their_own(thread: WriteThread) -> None:
    ran: list[int] = []
    for _ in range(3):
        await thread.run(lambda: ran.append(threading.get_ident()))
    assert len(set(ran)) == 1
    assert ran[0] != threading.get_ident()
    thread.close()


async def test_what_a_function_raises_is_raised_where_it_was_called(thread: WriteThread) -> None:
    def fail(what: str) -> None:
        raise ValueError(what)

    with pytest.raises(ValueError, match="one"):
        await thread.run(fail, "one")
    ran: list[str] = []
    await thread.run(ran.append, "two")
    assert ran == ["two"]
    thread.close()


async def test_the_loop_goes_on_meanwhile(thread: WriteThread) -> None:
    met = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(thread.run, met.wait)
        await trio.testing.wait_all_tasks_blocked()
        met.set()
    thread.close()


async def test_what_has_begun_is_finished_and_what_was_cancelled_before_does_not_begin(
    thread: WriteThread,
) -> None:
    met, ran = threading.Event(), list[str]()

    def write() -> None:
        met.wait()
        ran.append("written")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(thread.run, write)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        met.set()
    assert ran == ["written"]
    with trio.CancelScope() as scope:
        scope.cancel()
        await thread.run(ran.append, "again")
    assert scope.cancelled_caught
    assert ran == ["written"]
    thread.close()


async def test_it_ends_with_close_and_can_begin_again(thread: WriteThread) -> None:
    assert threads() == []
    thread.close()
    await thread.run(int)
    assert len(threads()) == 1
    thread.close()
    assert threads() == []
    await thread.run(int)
    thread.close()
    thread.close()
    assert threads() == []
