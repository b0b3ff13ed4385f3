"""A session whose connection is lost may come back within its grace period, and nobody has seen it go."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

import dataspace
from dataspace import Broken, ConnectionChange, Record, RemoteSpace
from dataspace.client.observations import Observation
from dataspace.kernel.actions import ASSERT, RETRACT
from dataspace.streams.stages.protocol import Aborted
from dataspace.wire import packets as p
from dataspace.wire.features import Wanted
from index.patterns.patterns import capture, observe
from index.values.values import Map
from server.config.model import Limits
from server.config.principals import Quotas
from tests.server.peers import PLENTY, Peer, fact, hello, opening, turn
from tests.server.proxies import Proxy

GRACE = 20.0


@pytest.fixture
async def witness(url: str) -> AsyncIterator[RemoteSpace]:
    async with dataspace.connect(url) as space:
        yield space


class Back:
    """Waits until a client has lost its connection so often, and has another."""

    def __init__(self, space: RemoteSpace) -> None:
        self.space = space
        self.changed = trio.Event()
        space.on_connection = lambda _what: self.changed.set()

    async def wait(self, reconnects: int = 1) -> None:
        with trio.fail_after(10):
            while self.space.reconnects < reconnects:
                self.changed = trio.Event()
                await self.changed.wait()


async def _sessions_waiting(witness: RemoteSpace, count: int) -> None:
    with trio.fail_after(10):
        while (await witness.status())["sessions_waiting"] != count:
            await witness.sync()


async def _take(observation: Observation, count: int) -> list[tuple[str, object]]:
    with trio.fail_after(10):
        return [
            (change.kind, change.captures[0]) for change in [await anext(observation) for _ in range(count)]
        ]


@pytest.mark.slow
async def test_facts_and_handles_are_as_they_were_and_nobody_saw_a_blink(
    url: str, proxy: Proxy, witness: RemoteSpace
) -> None:
    async with (
        witness.observe("present($who)") as seen,
        dataspace.connect(proxy.url, grace=GRACE) as space,
    ):
        back = Back(space)
        alice = await space.assert_(Record("present", "Alice"))
        proxy.cut()
        await back.wait()
        await space.replace(alice, Record("present", "Bob"))
        await space.assert_(Record("present", "Carol"))
        assert await _take(seen, 4) == [("+", "Alice"), ("+", "Bob"), ("-", "Alice"), ("+", "Carol")]
        assert (await witness.status())["sessions_resumed"] == 1


async def test_turns_made_meanwhile_are_in_effect_once(proxy: Proxy, witness: RemoteSpace) -> None:
    async with (
        witness.observe("say($n)", snapshot=False) as heard,
        dataspace.connect(proxy.url, grace=GRACE) as space,
    ):
        heard.open()
        await witness.sync()
        await space.assert_(Record("present", "Alice"))
        proxy.refusing = True
        proxy.cut()
        tickets = []
        for n in range(20):
            draft = space.draft()
            draft.send(Record("say", n))
            tickets.append(await space.submit(draft))
        await _sessions_waiting(witness, 1)
        proxy.refusing = False
        epochs = [await ticket.wait() for ticket in tickets]
        assert epochs == sorted(set(epochs))
        assert await _take(heard, 20) == [("!", n) for n in range(20)]


@pytest.mark.slow
async def test_observations_are_sent_what_they_missed_epoch_by_epoch(
    proxy: Proxy, witness: RemoteSpace
) -> None:
    async with dataspace.connect(proxy.url, grace=GRACE) as space, space.observe("n($n)") as seen:
        await seen.next_epoch()
        proxy.refusing = True
        proxy.cut()
        await _sessions_waiting(witness, 1)
        for n in range(10):  # facts that came and went while nobody looked, and messages
            claim = await witness.assert_(Record("n", n))
            await witness.send(Record("n", -n))
            await witness.retract(claim)
        proxy.refusing = False
        missed = await _take(seen, 30)
        assert missed == [change for n in range(10) for change in (("+", n), ("!", -n), ("-", n))]


async def test_interests_do_not_blink_and_those_given_up_meanwhile_go(
    proxy: Proxy, witness: RemoteSpace
) -> None:
    interest = observe(Record("n", capture("n")))
    async with (
        witness.observe(Record("Observe", Record("lit", interest.fields[0]))) as watched,
        dataspace.connect(proxy.url, grace=GRACE) as space,
    ):
        assert (await watched.next_epoch()) is not None
        kept, given_up = space.observe("n($n)"), space.observe("m($n)")
        await kept.next_epoch()
        await given_up.next_epoch()
        back = Back(space)
        proxy.refusing = True
        proxy.cut()
        await _sessions_waiting(witness, 1)
        await given_up.aclose()
        proxy.refusing = False
        await back.wait()
        await space.sync()
        assert await witness.matches("Observe(m($))") == []
        await kept.aclose()
        await space.sync()
        with trio.fail_after(10):
            changes = [change.kind for change in [await anext(watched), await anext(watched)]]
        assert changes == ["+", "-"], "it came once and went once"


@pytest.mark.slow
@pytest.mark.parametrize("limits", [Limits(grace_seconds=0.05)])
async def test_after_the_grace_period_the_facts_go_and_the_client_shows_the_difference_only(
    proxy: Proxy, witness: RemoteSpace
) -> None:
    stays = await witness.assert_(Record("n", 0))
    goes = await witness.assert_(Record("n", 1))
    async with (
        dataspace.connect(proxy.url, grace=GRACE) as space,
        space.observe("n($n)") as seen,
        witness.observe("n(2)") as own,
    ):
        await own.next_epoch()
        assert await _take(seen, 2) == [("+", 0), ("+", 1)]
        await space.assert_(Record("n", 2))
        assert await _take(seen, 1) == [("+", 2)]
        proxy.refusing = True
        proxy.cut()
        with trio.fail_after(10):
            assert [len((await own.next_epoch()).added), len((await own.next_epoch()).removed)] == [1, 1]  # type: ignore[union-attr]  # not at its end
        await witness.replace(stays, Record("n", 0))
        await witness.retract(goes)
        await witness.send(Record("n", "a message"))
        await witness.assert_(Record("n", 3))
        proxy.refusing = False
        # n(2) went and came back, n(0) was replaced by itself: neither is shown.
        assert await _take(seen, 3) == [("+", 3), ("!", "a message"), ("-", 1)]
        assert await witness.matches("n(2)") == [()]
        await space.send(Record("n", "the next"))
        assert await _take(seen, 1) == [("!", "the next")]


async def test_without_grace_facts_go_with_the_connection(proxy: Proxy, witness: RemoteSpace) -> None:
    async with witness.observe("present($who)") as seen, dataspace.connect(proxy.url) as space:
        await space.assert_(Record("present", "Alice"))
        proxy.refusing = True
        proxy.cut()
        assert await _take(seen, 2) == [("+", "Alice"), ("-", "Alice")]


async def test_a_goodbye_ends_the_session_at_once(url: str, witness: RemoteSpace) -> None:
    async with witness.observe("present($who)") as seen:
        async with dataspace.connect(url, grace=GRACE) as space:
            await space.assert_(Record("present", "Alice"))
        assert await _take(seen, 2) == [("+", "Alice"), ("-", "Alice")]
        assert (await witness.status())["sessions_waiting"] == 0


async def _greeted(peer: Peer, wanted: Wanted, client: str = "~peer") -> p.Welcome:
    await peer.say(hello(client)._replace(features=wanted.packed()))
    welcome = await peer.hear()
    assert isinstance(welcome, p.Welcome)
    return welcome


async def _left_waiting(url: str, witness: RemoteSpace) -> p.Welcome:
    """A session with one fact that waits for its client; its welcome."""
    async with Peer(url) as peer:
        welcome = await _greeted(peer, Wanted(grace=GRACE))
        await peer.say(turn(1, (ASSERT, 1, fact(1))))
        assert isinstance(await peer.hear(), p.Accepted)
    await _sessions_waiting(witness, 1)
    return welcome


async def test_the_secret_admits_and_the_session_has_its_number(url: str, witness: RemoteSpace) -> None:
    first = await _left_waiting(url, witness)
    secret = first.features["secret"]
    assert isinstance(secret, bytes) and len(secret) == 16
    async with Peer(url) as peer:
        again = await _greeted(peer, Wanted(grace=GRACE, resume=(first.session, secret)))
        assert (again.session, again.sequence, again.features["resumed"]) == (first.session, 1, True)
        await peer.say(turn(2, (RETRACT, 1)))
        assert isinstance(await peer.hear(), p.Accepted)


@pytest.mark.parametrize("off", [(1, b""), (0, b"\0" * 16)])
async def test_a_wrong_number_or_secret_ends_no_session(
    url: str, witness: RemoteSpace, off: tuple[int, bytes]
) -> None:
    first = await _left_waiting(url, witness)
    secret = first.features["secret"]
    assert isinstance(secret, bytes)
    wrong = Wanted(grace=GRACE, resume=(first.session + off[0], off[1] or secret))
    async with Peer(url) as peer:
        await peer.say(p.Hello(p.VERSION, "~peer", "", wrong.packed()))
        refused = await peer.farewell()
        assert (refused.code, "come back without resume" in refused.text) == ("not-allowed", True)
    assert await witness.matches("fact($)") != [], "the session waits as before"
    async with Peer(url) as peer:
        again = await _greeted(peer, Wanted(grace=GRACE))
        assert again.session != first.session and "resumed" not in again.features
        assert await witness.matches("fact($)") == [], "the older session of this identity has ended"


async def test_a_process_that_lost_its_welcome_may_show_the_ticket_of_the_session_before(
    url: str, witness: RemoteSpace
) -> None:
    async with Peer(url) as unheard, Peer(url) as peer:
        first = await _greeted(unheard, Wanted(grace=GRACE, attempt=(1, b"process")))
        stale = Wanted(grace=GRACE, resume=(first.session - 1, b"\0" * 16), attempt=(2, b"process"))
        again = await _greeted(peer, stale)
        assert again.session != first.session
        assert (await unheard.farewell()).code == "superseded"


async def test_a_client_takes_over_from_its_own_ghost(url: str, witness: RemoteSpace) -> None:
    """The old connection is still open, as far as the daemon knows."""
    async with witness.observe("fact($n)") as seen, Peer(url) as ghost, Peer(url) as peer:
        first = await _greeted(ghost, Wanted(grace=GRACE))
        await ghost.say(turn(1, (ASSERT, 1, fact(1))), opening(7, quiet=False))
        assert isinstance(await ghost.hear(), p.Accepted | p.Values)
        secret = first.features["secret"]
        assert isinstance(secret, bytes)
        await _greeted(peer, Wanted(grace=GRACE, resume=(first.session, secret)))
        assert (await ghost.farewell()).code == "superseded"
        await peer.say(opening(7, quiet=False), turn(2, (ASSERT, 2, fact(2))))
        assert await _take(seen, 2) == [("+", 1), ("+", 2)]


async def test_a_protocol_error_ends_the_session_at_once(url: str, witness: RemoteSpace) -> None:
    async with Peer(url) as peer:
        await _greeted(peer, Wanted(grace=GRACE))
        await peer.say(turn(1, (ASSERT, 1, fact(1))))
        assert isinstance(await peer.hear(), p.Accepted)
        await peer.say(hello())
        assert (await peer.farewell()).code == "unexpected"
    assert await witness.matches("fact($)") == []
    assert (await witness.status())["sessions_waiting"] == 0


@pytest.mark.slow
async def test_more_observations_than_replays_come_back(url: str, proxy: Proxy, witness: RemoteSpace) -> None:
    """Each must read the log; they take turns, and none is refused."""
    async with dataspace.connect(proxy.url, grace=GRACE) as space:
        await space.assert_(Record("present", "Alice"))
        seen = [space.observe(Record("n", n, capture()), quiet=True) for n in range(400)]
        for each in seen:
            await each.next_epoch()
        proxy.refusing = True
        proxy.cut()
        await _sessions_waiting(witness, 1)
        async with witness.turn() as draft:
            for n in range(400):
                draft.send(Record("n", n, "missed"))
        proxy.refusing = False
        for each in seen:
            assert await _take(each, 1) == [("!", "missed")]


@pytest.mark.parametrize("limits", [Limits(waiting_sessions=3)])
async def test_only_so_many_sessions_wait(url: str, witness: RemoteSpace) -> None:
    for n in range(6):
        async with Peer(url) as peer:
            await _greeted(peer, Wanted(grace=GRACE), f"~peer {n}")
            await peer.say(turn(1, (ASSERT, 1, fact(n))))
            assert isinstance(await peer.hear(), p.Accepted)
    await _sessions_waiting(witness, 3)
    with trio.fail_after(10):
        while len(await witness.matches("fact($)")) != 3:
            await witness.sync()


@pytest.mark.parametrize("quotas", [Quotas(waiting_sessions=2)])
@pytest.mark.parametrize("limits", [Limits(waiting_sessions=3)])
async def test_sessions_that_one_client_leaves_behind_take_no_place_from_another(
    url: str, witness: RemoteSpace
) -> None:
    for n, source in enumerate(["127.0.0.2"] * 6 + ["127.0.0.3"]):
        async with Peer(url, source=source) as peer:
            await _greeted(peer, Wanted(grace=GRACE), f"~peer {n}")
            await peer.say(turn(1, (ASSERT, 1, fact(n))))
            assert isinstance(await peer.hear(), p.Accepted)
    await _sessions_waiting(witness, 3)
    with trio.fail_after(10):
        while len(found := await witness.matches("fact($n)")) != 3:
            await witness.sync()
    assert (6,) in found


async def test_features_of_the_wrong_kind_are_refused(url: str) -> None:
    async with Peer(url) as peer:
        await peer.say(hello()._replace(features=Map({"resume": "please"})))
        bye = await peer.farewell()
        assert "features.resume must be a session's number and its secret" in bye.text


@pytest.mark.parametrize("policy", ["wait", "fail", "drop"])
async def test_without_grace_every_change_is_told_to_those_that_want_each(
    proxy: Proxy, witness: RemoteSpace, policy: str
) -> None:
    """A state that is followed with ``conflate`` may come as a net difference; with other policies, not."""
    async with dataspace.connect(proxy.url) as space, space.observe("n($n)", policy=policy) as seen:
        await witness.assert_(Record("n", "before"))
        assert await _take(seen, 1) == [("+", "before")]
        back = Back(space)
        proxy.refusing = True
        proxy.cut()
        claim = await witness.assert_(Record("n", 1))
        await witness.retract(claim)
        claim = await witness.assert_(Record("n", 2))
        claim = await witness.replace(claim, Record("n", 3))
        await witness.send(Record("n", "said"))
        proxy.refusing = False
        await back.wait()
        assert await _take(seen, 6) == [("+", 1), ("-", 1), ("+", 2), ("+", 3), ("-", 2), ("!", "said")]


async def test_without_grace_conflate_is_told_the_difference(proxy: Proxy, witness: RemoteSpace) -> None:
    async with dataspace.connect(proxy.url) as space, space.observe("n($n)") as seen:
        await seen.next_epoch()
        proxy.refusing = True
        proxy.cut()
        claim = await witness.assert_(Record("n", 1))
        await witness.replace(claim, Record("n", 2))
        last = await witness.sync()
        proxy.refusing = False
        difference = await seen.next_epoch()
        assert difference is not None
        assert [change.captures for change in difference] == [(2,)]
        assert difference.first < difference.number <= last


@pytest.mark.parametrize("what", ["nothing", "quiet", "durable", "lease", "producer", "request"])
async def test_a_session_with_grace_is_kept_whatever_it_has(
    url: str, witness: RemoteSpace, what: str
) -> None:
    """Facts and interests are not all that a client may come back to."""
    async with Peer(url) as peer:
        first = await _greeted(peer, Wanted(grace=GRACE))
        if what == "quiet":
            await peer.say(opening(3))
        elif what == "durable":
            await peer.say(turn(1, (ASSERT, 1, fact(1)), owner="keeper"))
        elif what == "lease":
            owner = "lease:60000:mine"
            await peer.say(
                p.Request(1, "lease", Map({"owner": owner})), turn(1, (ASSERT, 1, fact(1)), owner=owner)
            )
            await peer.hear()
        elif what == "producer":
            await peer.say(p.Request(1, "join", Map({"topic": "readings"})))
        elif what == "request":
            await peer.say(p.Request(1, "frontier", Map({"after": 1 << 40, "wait": 60_000})))
        if what not in ("nothing", "request"):
            await peer.hear()
    await _sessions_waiting(witness, 1)
    secret = first.features["secret"]
    assert isinstance(secret, bytes)
    async with Peer(url) as peer:
        again = await _greeted(peer, Wanted(grace=GRACE, resume=(first.session, secret)))
        assert (again.session, again.features.get("resumed")) == (first.session, True)


@pytest.mark.parametrize("limits", [Limits(waiting_sessions=2)])
async def test_sessions_that_hold_nothing_give_way_to_those_that_do(url: str, witness: RemoteSpace) -> None:
    for n in range(4):
        async with Peer(url) as peer:
            await _greeted(peer, Wanted(grace=GRACE), f"~empty {n}")
    await _sessions_waiting(witness, 2)
    for n in range(3):
        async with Peer(url) as peer:
            await _greeted(peer, Wanted(grace=GRACE), f"~holder {n}")
            await peer.say(turn(1, (ASSERT, 1, fact(n))))
            assert isinstance(await peer.hear(), p.Accepted)
    with trio.fail_after(10):
        while len(await witness.matches("fact($)")) != 2:
            await witness.sync()
    assert (await witness.status())["sessions_waiting"] == 2


async def test_streams_of_a_resumed_session_count_from_nothing(url: str, witness: RemoteSpace) -> None:
    """``Values.first``, credit and peeks are about a stream since it was opened, on this connection."""
    async with Peer(url) as peer:
        first = await _greeted(peer, Wanted(grace=GRACE))
        await peer.say(opening(7, items=2))
        heard = await peer.hear()
        assert isinstance(heard, p.Values) and heard.first == 0
        epoch = await witness.send(fact(1))
        heard = await peer.hear()
        assert isinstance(heard, p.Values) and heard.first == 1
        await peer.say(p.Peek(7, 5))
    await _sessions_waiting(witness, 1)
    for n in range(4):
        await witness.send(fact(n))
    secret = first.features["secret"]
    assert isinstance(secret, bytes)
    async with Peer(url) as peer:
        await _greeted(peer, Wanted(grace=GRACE, resume=(first.session, secret)))
        await peer.say(opening(7, items=1, after=epoch))
        heard = await peer.hear()
        assert isinstance(heard, p.Values) and (heard.stream, heard.first, len(heard.values)) == (7, 0, 1)
        await peer.say(p.Peek(7, 4))
        assert await peer.hear() == p.Available(7, 4)
        await peer.say(p.Ask(7, 3, PLENTY))
        came = 1
        while came < 3:
            heard = await peer.hear()
            assert isinstance(heard, p.Values) and heard.first == came
            came += len(heard.values)
        assert came == 3
        await peer.say(p.Ping(1))
        assert await peer.hear() == p.Pong(1), "no value beyond the credit"


# -- without coming back --------------------------------------------------------------------------------


async def test_a_lost_connection_is_drained_and_then_raises_the_reason(
    proxy: Proxy, witness: RemoteSpace
) -> None:
    async with dataspace.connect(proxy.url, reconnect=False) as space, space.observe("n($n)") as seen:
        await seen.next_epoch()
        for n in range(20):
            await witness.send(Record("n", n))
        await space.sync()  # all of it has come, and none was read
        lost = trio.Event()
        space.on_connection = lambda event: lost.set() if event.change is ConnectionChange.LOST else None
        proxy.cut()
        await lost.wait()
        assert await _take(seen, 20) == [("!", n) for n in range(20)]
        with pytest.raises(Broken, match=r"connection to tcp://.* was lost: the daemon closed it"):
            await anext(seen)
        with pytest.raises(Aborted) as later:
            await anext(seen)
        assert isinstance(later.value.reason, Broken)
        assert await seen.peek() is False
        with pytest.raises(Broken, match="was lost"):
            await space.send("too late")
