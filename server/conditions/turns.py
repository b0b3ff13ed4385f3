"""Conditional turns, and those of several owners: checked in the step in which they are committed.

An expectation is a read, so it needs the right to observe its pattern.  What takes long is done beforehand:
the positions that a pattern compares are filed in the lane where many facts are alike, and epochs of the
previous daemon are read back in a thread.  Then the check and the commit are one step, with no turn between.

Always: a turn that is refused has changed nothing and is not remembered: sent again, it is judged again; one
that was accepted is answered with its epoch, and judged no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dataspace.errors import ExpectationFailed, Refused, UsageError
from dataspace.kernel.actions import Action
from dataspace.kernel.expectations import UNCHANGED, Condition, too_much
from dataspace.kernel.turns import MOST_OWNERS, Part
from dataspace.wire import packets as p
from index.patterns.readers import match_reader
from index.values.values import Value
from relay.log.recent import Recent
from server.conditions.ports import ConditionPeer
from server.lane import Work
from server.spaces.space import HostedSpace

TEXT: Final = 4000
"""Characters of the text of a refusal."""


def commit_at_once(peer: ConditionPeer, turn: p.Turn) -> bool:
    """Commits a turn if all that it expects holds, else refuses it with what was found.

    Returns False, and has done nothing, if that may take waiting.
    """
    try:
        return _commit(peer, turn, _read(peer, turn), at_once=True)
    except (Refused, UsageError) as error:
        _refuse(peer, turn.sequence, error)
        return True


async def commit_conditional(peer: ConditionPeer, turn: p.Turn) -> None:
    """Does the same, and waits for what it takes."""
    try:
        conditions = _read(peer, turn)
        await _prepare(peer, conditions)
        if not peer.gone:  # it may have ended meanwhile
            _commit(peer, turn, conditions)
    except (Refused, UsageError) as error:
        _refuse(peer, turn.sequence, error)


def _read(peer: ConditionPeer, turn: p.Turn) -> Sequence[Condition]:
    """Returns what a turn expects; raises ``Refused`` or ``UsageError`` for what may not be expected."""
    conditions = Condition.read(turn.expected)
    if not peer.permit.open:
        for each in conditions:
            peer.permit.check_observe(each.expected.pattern)
    return conditions


def _refuse(peer: ConditionPeer, sequence: int, error: Refused | UsageError) -> None:
    if isinstance(error, Refused):
        found = error.found if isinstance(error, ExpectationFailed) else p.EMPTY
        peer.say(p.Refusal(sequence, error.code, error.text[:TEXT], found))
    else:
        peer.say(p.Refusal(sequence, "bad-request", str(error)[:TEXT]))


def _commit(
    peer: ConditionPeer,
    turn: p.Turn,
    conditions: Sequence[Condition],
    *,
    at_once: bool = False,
) -> bool:
    """Checks and commits, in one step; returns False, undecided, if it is to be at once and takes long."""
    home, client = peer.home, peer.own.client
    first = _part(peer, turn.owner, turn.actions)
    if len(turn.others) >= MOST_OWNERS:
        raise Refused("limit", f"a turn of {1 + len(turn.others)} owners, the limit is {MOST_OWNERS}")
    others = [_part(peer, name, actions) for name, actions in turn.others]
    home.check_space(turn.space)
    home.finish_ending(first[0])  # what ends before the turn has ended before the check
    for owner, _ in others:
        home.finish_ending(owner)
    if not check(home, conditions, at_once=at_once):
        return False
    home.commit(
        *first,
        others,
        client=client,
        sequence=turn.sequence,
        account=peer.account,
        on_durable=peer.accept,
    )
    peer.turns += 1
    return True


def _part(peer: ConditionPeer, name: str, actions: Sequence[Action]) -> Part:
    """Returns the owner that is meant by a name, and its actions; raises ``Refused`` for what this client may
    not do."""
    owner = peer.owner_of(name) if name else peer.own.owner
    if not peer.permit.open:
        peer.permit.check_actions(actions)
    return owner, actions


def check(home: HostedSpace, conditions: Sequence[Condition], *, at_once: bool = False) -> bool:
    """Raises ``ExpectationFailed`` for the first condition that does not hold now, ``Refused`` for one that
    cannot be decided within the limits.  O(matches), and O(changes since) for what is to be unchanged.

    Returns False, undecided, if it is to be ``at_once`` and something must be filed or read back first.
    """
    left = home.limits.expected_facts
    for each in conditions:
        if each.expected.kind == UNCHANGED:
            if at_once and home.commits.recent.lacks(_since(each)):
                return False
            left -= _check_unchanged(home, each, left)
        else:
            looked_at = home.conditions.check(each, left, at_once=at_once)
            if looked_at < 0:
                return False
            left -= looked_at
    return True


def _check_unchanged(home: HostedSpace, condition: Condition, most: int) -> int:
    """Checks that no fact that matches has come or gone after an epoch; returns how many changes there were.

    Exact, since it looks at every change of facts of the pattern's class after that epoch: what is no longer
    in memory is refused, not assumed.
    """
    recent, since = home.commits.recent, _since(condition)
    wanted = f"expectation {condition.number}: changes after epoch {since} are wanted"
    if since > home.space.epoch:
        raise Refused("epoch-ahead", f"{wanted}, the newest epoch is {home.space.epoch}")
    if home.log.lost(since):
        raise Refused("epoch-lost", f"epoch {since} was never acknowledged and was lost in a crash")
    if since < recent.after:
        said = (
            f"those after epoch {recent.after} are in memory; read the pattern again, and expect that it is"
        )
        raise Refused("epoch-gone", f"{wanted}, {said} unchanged since the epoch that is read then")
    return _look(recent, condition, since, most)


def _look(recent: Recent, condition: Condition, since: int, most: int) -> int:
    form = condition.form
    matches, looked_at = match_reader(form), 0
    for number, _, added, _, removed in recent.of_class(since, form.shape[0][1] if form.shape else None):
        looked_at += len(added) + len(removed)
        if looked_at > most:
            raise too_much(condition, most)
        came, went = _rows(map(matches, added)), _rows(map(matches, removed))
        if came or went:
            what = f"epoch {number} changed it: {len(came)} came and {len(went)} went"
            raise condition.failed(what, [*came, *went], len(came) + len(went), number)
    return looked_at


def _rows(found: object) -> list[tuple[Value, ...]]:
    return [row for row in found if row is not None]  # type: ignore[attr-defined]  # an iterable, as given


def _since(condition: Condition) -> int:
    since = condition.expected.argument
    assert isinstance(since, int)  # as its form was checked
    return since


# -- what may take waiting -----------------------------------------------------------------------------


async def _prepare(peer: ConditionPeer, conditions: Sequence[Condition]) -> None:
    """Files what the patterns compare, and reads back epochs of the previous daemon, where that is needed."""
    home = peer.home
    for each in conditions:
        if each.expected.kind == UNCHANGED:
            await home.recalling.recall(home.commits.recent, home.log, _since(each), peer.work())
        else:
            await _file(home, each, peer)


async def _file(home: HostedSpace, condition: Condition, peer: ConditionPeer) -> None:
    work: Work | None = None
    steps = home.conditions.filing(condition)
    try:
        for _ in steps:
            if work is None:
                work = peer.work()
                await work.enter()
            elif work.is_over:
                await work.pass_on()
    finally:
        steps.close()  # drops what was not filed whole
        if work is not None:
            work.leave()
