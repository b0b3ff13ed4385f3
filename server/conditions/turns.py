"""Turns that expect something, have several owners, put or withdraw: decided as they are committed.

An expectation is a read, so it needs the right to observe its pattern.  Expectations that are decided soon
are decided where the turn is read; all others go through the lane, in turns of the principal and before
anything is looked at: patterns are analysed and their compared parts are filed there, in steps (``judging``),
and epochs of the previous daemon are read back in a thread.  Where the turn puts or withdraws, the claims of
the owner are looked through in the lane as well (``TurnSearches``).  Then the check and the commit are one
step, with no turn between.

Always: a turn that is refused has changed nothing and is not remembered: sent again, it is judged again; an
accepted turn is answered with its epoch, and judged no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from dataspace.errors import ExpectationFailed, Refused, UsageError
from dataspace.kernel.actions import Action, are_by_handle
from dataspace.kernel.turns import MOST_OWNERS, Part
from dataspace.steps import at_once
from dataspace.wire import packets as p
from server.conditions.judging import AT_ONCE, Judgement, reading
from server.sessions.peer import Peer
from server.spaces.searches import OwnerSearch

if TYPE_CHECKING:
    from server.lane import Work
    from server.spaces.space import HostedSpace


TEXT: Final = 4000
"""Characters of the text of a refusal."""


def commit_at_once(peer: Peer, turn: p.Turn) -> bool:
    """Commits a turn if all its expectations hold, else refuses it with the facts found.

    Returns False, and has done nothing, if that may take waiting.
    """
    if len(turn.expected) > AT_ONCE:
        return False
    try:
        judgement = Judgement(peer.hosted, at_once(reading(turn.expected, peer.permit)))
        return _commit(peer, turn, judgement.decide_at_once, TurnSearches(peer.hosted))
    except (Refused, UsageError) as error:
        _refuse(peer, turn.sequence, error)
        return True


async def commit_conditional(peer: Peer, turn: p.Turn) -> None:
    """Does the same, and waits for its work in the lane."""
    try:
        async with peer.work() as work:
            expected = await work.go_on(reading(turn.expected, peer.permit))
            judgement, searches = Judgement(peer.hosted, expected), TurnSearches(peer.hosted)
            try:
                while True:
                    await judgement.prepare_in_lane(work, peer.asker, peer.account.grow)
                    await searches.prepare(_parts(peer, turn), work)
                    if peer.gone or _commit(peer, turn, judgement.decide, searches):
                        return  # its connection may have ended meanwhile
            finally:
                judgement.close()
                searches.close()
    except (Refused, UsageError) as error:
        _refuse(peer, turn.sequence, error)


def _refuse(peer: Peer, sequence: int, error: Refused | UsageError) -> None:
    if isinstance(error, Refused):
        found = error.found if isinstance(error, ExpectationFailed) else p.EMPTY
        peer.say(p.Refusal(sequence, error.code, error.text[:TEXT], found))
    else:
        peer.say(p.Refusal(sequence, "bad-request", str(error)[:TEXT]))


def _commit(peer: Peer, turn: p.Turn, decide: Callable[[], bool], searches: TurnSearches) -> bool:
    """Checks and commits, in one step; returns False, and has done nothing, if more must be prepared."""
    hosted, client = peer.hosted, peer.own.client
    parts = _parts(peer, turn)
    hosted.check_space(turn.space)
    for owner, _ in parts:
        hosted.finish_ending(owner)  # what ends before the turn has ended before the check
    if not decide():
        return False
    by_handle = searches.by_handle(parts)
    if by_handle is None:
        return False
    hosted.commit(
        *by_handle[0],
        by_handle[1:],
        client=client,
        sequence=turn.sequence,
        account=peer.account,
        on_durable=peer.accept,
    )
    peer.turns += 1
    return True


def _parts(peer: Peer, turn: p.Turn) -> list[Part]:
    """Returns the owners of a turn and their actions; raises ``Refused`` for what this client may not do."""
    if len(turn.others) >= MOST_OWNERS:
        raise Refused("limit", f"a turn of {1 + len(turn.others)} owners, the limit is {MOST_OWNERS}")
    parts = [
        _part(peer, turn.owner, turn.actions),
        *[_part(peer, name, actions) for name, actions in turn.others],
    ]
    _check_owners(parts)
    return parts


def _part(peer: Peer, name: str, actions: Sequence[Action]) -> Part:
    """Returns the owner that is meant by a name, and its actions; raises ``Refused`` for what this client may
    not do."""
    owner = peer.owner_of(name) if name else peer.own.owner
    if not peer.permit.open:
        peer.permit.check_actions(actions)
    return owner, actions


class TurnSearches:
    """The searches of one turn; ``close`` must follow.

    An owner with few claims is looked through in the step of the commit.  An owner with many is looked
    through in the lane, before the turn and for one turn at a time, while other turns go on; claims that
    other turns begin are looked at as well, and claims that other turns end are left out in the last step.

    Always: actions by handle are exact in the step in which they are made; searches are over once ``close``
    was called.
    """

    def __init__(self, hosted: HostedSpace) -> None:
        self._hosted = hosted
        self._found: dict[str, OwnerSearch] = {}
        self._open = ExitStack()

    async def prepare(self, parts: Sequence[Part], work: Work) -> None:
        """Looks through the claims of the owners in turns of the lane; when called again, looks at newer
        claims alone."""
        hosted = self._hosted
        for owner, actions in parts:
            if are_by_handle(actions):
                continue
            if owner in self._found:
                await work.go_on(self._found[owner].catching_up())
                continue
            search = self._open.enter_context(hosted.searches.of(owner, actions))
            work.leave()  # else the one that has the lock would wait for this turn
            async with hosted.withdrawing(owner):  # requests that wait here have begun no search
                await work.enter()
                hosted.finish_ending(owner)
                await work.go_on(search.reading())
            self._found[owner] = search

    def by_handle(self, parts: Sequence[Part]) -> list[Part] | None:
        """Returns the parts of the turn with actions by handle, as of now; None if more must be prepared."""
        made: list[Part] = []
        for owner, actions in parts:
            if are_by_handle(actions):
                made.append((owner, actions))
                continue
            search = self._found.get(owner)
            if search is not None:
                if search.is_behind:
                    return None
                made.append((owner, search.settled()))
                continue
            quick = self._hosted.searches.of(owner, actions)
            if not quick.is_quick:
                return None
            at_once(quick.looking())
            made.append((owner, quick.settled()))
        return made

    def close(self) -> None:
        """Ends the searches; may be called again."""
        self._open.close()


def _check_owners(parts: Sequence[Part]) -> None:
    """Raises ``Refused`` for an owner that stands in a turn twice."""
    if len({owner for owner, _ in parts}) < len(parts):
        raise Refused("bad-request", "an owner stands twice in a turn: put its actions together")
