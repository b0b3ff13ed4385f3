"""A link without a socket holds back, and ends, as one with a socket does."""

from __future__ import annotations

import trio
import trio.testing

from server.web.inner.link import ROOM, InnerLink


async def test_what_is_not_read_is_bounded() -> None:
    link = InnerLink("10.0.0.7:80")
    data = b"x" * (ROOM + 5)
    assert link.send_nowait(data) == ROOM and link.send_nowait(data) == 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.wait_writable)
        await trio.testing.wait_all_tasks_blocked()
        assert nursery.child_tasks
        assert await link.hear() == data[:ROOM]
    assert link.send_nowait(b"more") == 4


async def test_both_ends_wait_for_each_other_and_take_nothing_when_cancelled() -> None:
    link = InnerLink("unix")
    for waiting in (link.hear, link.receive):
        with trio.move_on_after(0) as scope:
            await waiting()
        assert scope.cancelled_caught
    link.tell(b"to the session")
    link.send_nowait(b"to the route")
    assert (await link.receive(), await link.hear()) == (b"to the session", b"to the route")
    assert link.receive_nowait() is None


async def test_what_was_said_before_the_end_arrives() -> None:
    link = InnerLink("unix")
    link.tell(b"bye")
    link.hang_up()
    assert (await link.receive(), await link.receive()) == (b"bye", b"")
    link = InnerLink("unix")
    link.send_nowait(b"bye")
    link.finish()
    assert (await link.hear(), await link.hear()) == (b"bye", b"")


async def test_after_the_end_nothing_is_kept_and_no_one_waits() -> None:
    link = InnerLink("unix")
    link.send_nowait(b"x" * ROOM)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.wait_writable)
        await trio.testing.wait_all_tasks_blocked()
        link.hang_up()
    assert link.send_nowait(b"late" * ROOM) == 4 * ROOM
    link.close()
    link.tell(b"late")
    assert (link.receive_nowait(), await link.hear()) == (b"", b"")
