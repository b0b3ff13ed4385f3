"""Turns that expect something, have several owners, put or withdraw: decided as they are committed.

An expectation is a read, so it needs the right to observe its pattern.  Expectations that are decided soon
are decided where the turn is read; all others go through the lane, in turns of the principal and before
anything is looked at: patterns are analysed and their compared parts are filed there, in steps
(``Judgement``), and epochs of the previous daemon are read back in a thread.  Where the turn puts or
withdraws, the claims of the owner are looked through in the lane as well (``TurnSearches``).  Then the check
and the commit are one step, with no turn between.

Always: a turn that is refused has changed nothing and is not remembered: sent again, it is judged again; an
accepted turn is answered with its epoch, and judged no more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from dataspace.errors import DeliveryLost, ExpectationFailed, Refused, UsageError
from dataspace.kernel.actions import Action, are_by_handle
from dataspace.kernel.expectations import (
    ABSENT,
    EXACTLY,
    FOUND_ROWS,
    UNCHANGED,
    Condition,
    rows_text,
    too_much,
)
from dataspace.kernel.turns import MOST_OWNERS, Part
from dataspace.steps import Steps, at_once
from dataspace.wire import packets as p
from index.patterns.events import Captures, Event
from index.patterns.readers import match_reader
from index.patterns.skeletons import Skeleton
from index.values.values import Value, keys
from relay.log.recent import RecentEpochs
from server.sessions.peer import Peer
from server.spaces.space import HostedSpace
from server.spaces.turns.conditions import FILED_BYTES, QUICK, Conditions
from server.spaces.turns.searches import OwnerSearch

if TYPE_CHECKING:
    from server.config.rights import Permit
    from server.lane import Work


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
        peer.hosted.visibility.refuse(peer.say, refused(sequence, error))
    else:
        peer.say(p.Refusal(sequence, "bad-request", str(error)[:TEXT]))


def is_conditional(turn: p.Turn) -> bool:
    """True for a turn that is decided here; O(actions)."""
    return bool(turn.expected or turn.others) or not are_by_handle(turn.actions)


def commit_reporting(peer: Peer, turn: p.Turn, owner: str) -> None:
    """Commits a turn without expectations that reports jobs as done; raises ``Refused`` for all of it."""
    hosted = peer.hosted
    done = hosted.reported(turn.done, peer.permit, peer.principal)
    hosted.commit(
        owner,
        turn.actions,
        client=peer.own.client,
        sequence=turn.sequence,
        account=peer.account,
        on_durable=peer.accept,
        notes=done.notes,
    )
    done.committed()


def refused(sequence: int, error: Refused) -> p.Refusal:
    """Returns the refusal of a turn, with the state that was found in place of an expected one."""
    found = error.found if isinstance(error, ExpectationFailed | DeliveryLost) else p.EMPTY
    return p.Refusal(sequence, error.code, error.text[:TEXT], found, error.url)


def _commit(peer: Peer, turn: p.Turn, decide: Callable[[], bool], searches: TurnSearches) -> bool:
    """Checks and commits, in one step; returns False, and has done nothing, if more must be prepared."""
    hosted, client = peer.hosted, peer.own.client
    parts = _parts(peer, turn)
    hosted.check_space(turn.space)
    for owner, _ in parts:
        hosted.finish_ending(owner)  # what ends before the turn has ended before the check
    time = hosted.rule_turns.until_now()
    if not decide():
        return False
    by_handle = searches.by_handle(parts)
    if by_handle is None:
        return False
    done = hosted.reported(turn.done, peer.permit, peer.principal)
    hosted.commit(
        *by_handle[0],
        by_handle[1:],
        client=client,
        sequence=turn.sequence,
        account=peer.account,
        on_durable=peer.accept,
        notes=done.notes,
        time=time,
    )
    peer.turns += 1
    done.committed()
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
            async with hosted.searches.lock(owner):  # requests that wait here have begun no search
                await work.enter()
                hosted.finish_ending(owner)
                await work.go_on(search.reading())
            self._found[owner] = search

    def by_handle(self, parts: Sequence[Part]) -> list[Part] | None:
        """Returns the parts of the turn with actions by handle, as of now; None if more must be prepared."""
        settled_parts: list[Part] = []
        for owner, actions in parts:
            if are_by_handle(actions):
                settled_parts.append((owner, actions))
                continue
            search = self._found.get(owner)
            if search is not None:
                if search.is_behind:
                    return None
                settled_parts.append((owner, search.settled()))
                continue
            quick = self._hosted.searches.of(owner, actions)
            if not quick.is_quick:
                return None
            at_once(quick.looking())
            settled_parts.append((owner, quick.settled()))
        return settled_parts

    def close(self) -> None:
        """Ends the searches; may be called again."""
        self._open.close()


def _check_owners(parts: Sequence[Part]) -> None:
    """Raises ``Refused`` for an owner that stands in a turn twice."""
    if len({owner for owner, _ in parts}) < len(parts):
        raise Refused("bad-request", "an owner stands twice in a turn: put its actions together")


# -- Judging ---------------------------------------------------------------------------------------
# To compare a pattern with all facts that are alike takes as long as a thousand turns. So all long
# work is done beforehand, in the lane, while the facts go on to change: the index files the parts
# that a pattern compares and keeps them up to date, changes since an epoch are looked at up to now,
# expected rows get their keys. The last step is bounded: ``JUDGED`` facts and changes that are
# compared one by one, and for each other pattern a look at its rows, which the index has counted.
# If more has come meanwhile, that is prepared again; each pattern is filed once, so there is an
# end.
#
# Always: ``decide`` goes by the facts of its own step, in the order of the expectations; values
# filed for a judgement are dropped when it is closed, but for the parts that ``Conditions`` keeps.


JUDGED: Final = 1_024
"""Facts and changes that are compared one by one in the step of a commit, in 1 to 2 ms."""

AT_ONCE: Final = 4
"""Expectations of a turn that is decided without being prepared."""

FEW: Final = 32
"""Expected rows that get their keys in one step, or changes that are looked at."""

FILED_VALUES: Final = 1 << 20
"""Facts that are filed for one turn at most, unless one set of positions has more."""


Admit: TypeAlias = Callable[[int, int], None]
"""Gets the facts and bytes that something grows by; raises ``Refused`` where there is no room for them."""


class Judgement:
    """The expectations of one turn; ``close`` must follow."""

    def __init__(self, hosted: HostedSpace, expected: Sequence[Condition]) -> None:
        self._hosted = hosted
        self._conditions: Conditions = hosted.conditions
        self._expected = expected
        self._wanted: dict[int, frozenset[Hashable]] = {}
        self._seen: dict[int, tuple[int, int]] = {}
        self._refused: dict[int, Refused] = {}
        self._filed: list[Skeleton] = []
        self._filed_values = 0

    # -- beforehand -----------------------------------------------------------------------------------

    async def prepare_in_lane(self, work: Work, asker: Hashable, admit: Admit) -> None:
        """Does ``prepare`` in the turn of ``work`` in the lane; first reads back epochs of the previous
        daemon, if an expectation is about them."""
        hosted = self._hosted
        for each in self._expected:
            if each.expected.kind == UNCHANGED and hosted.commits.recent.lacks(since := _since(each)):
                work.leave()  # reading has a turn of its own
                await hosted.recalling.recall(
                    hosted.commits.recent, hosted.log, since, hosted.lane.work(asker)
                )
                await work.enter()
        await work.go_on(self.prepare(admit))

    def prepare(self, admit: Admit) -> Steps[None]:
        """Does in steps what would take long in ``decide``.

        ``admit`` is asked before facts are filed, with their bytes, and raises ``Refused`` where the client
        has no room for them.
        """
        for condition in self._expected:
            if condition.expected.kind == UNCHANGED:
                yield from self._look_ahead(condition)
                continue
            if condition.expected.kind == EXACTLY and condition.number not in self._wanted:
                yield from self._want(condition)
            match_reader(condition.form)  # which may have to be written, and is kept then
            yield
        while (costly := self._next_to_file()) is not None:
            yield from self._file(costly, admit)

    def _want(self, condition: Condition) -> Steps[None]:
        """Gives the rows that are expected their keys."""
        rows = _rows_expected(condition)
        if len(rows) > (most := self._hosted.limits.expected_facts):
            raise too_much(condition, most)
        wanted: set[Hashable] = set()
        for begin in range(0, len(rows), FEW):
            wanted.update(map(keys, rows[begin : begin + FEW]))
            yield
        self._wanted[condition.number] = frozenset(wanted)

    def _look_ahead(self, condition: Condition) -> Steps[None]:
        """Looks at the changes until now; a failure is told when it is this expectation's turn."""
        recent = self._hosted.commits.recent
        yield from recent.sort()
        while condition.number not in self._refused:
            try:
                going_on = self._look(condition, FEW, self._hosted.limits.expected_facts)
            except Refused as refusal:
                self._refused[condition.number] = refusal
                return
            if not going_on:
                return
            yield

    def _next_to_file(self) -> Condition | None:
        """Returns the expectation that would take longest to compare one by one, if that is too long."""
        index, left, costliest, most = self._conditions.index, JUDGED, None, 0
        for condition in self._expected:
            if condition.expected.kind == UNCHANGED or condition.number in self._refused:
                continue
            if index.is_filling(condition.form):
                return condition  # for somebody else, and that may take long
            if index.rows(condition.form) is not None:
                continue
            alike = self._conditions.alike(condition.form)
            left -= alike
            if alike > most:
                costliest, most = condition, alike
        return costliest if left < 0 or most > QUICK else None

    def _file(self, condition: Condition, admit: Admit) -> Steps[None]:
        """Files the rows that an expectation compares in the index, unless there are too many."""
        form, index = condition.form, self._conditions.index
        is_much = self._conditions.alike(form) > QUICK
        most = self._hosted.limits.expected_facts
        self._filed.append(form)  # before there is anything to drop, so that an exception leaves nothing
        try:
            for _ in self._conditions.filing(form):
                self._check_room(index.of_shape(form), admit)
                rows = index.rows(form)
                if rows is not None and len(rows) > most:
                    self._refused[condition.number] = (
                        _found(condition, rows.values(), len(rows))
                        if condition.expected.kind == ABSENT
                        else too_much(condition, most)
                    )
                    return
                yield
            index.add_handler(form, self._ignored, tells=False)
            self._filed_values += index.of_shape(form)
            if is_much:
                self._conditions.keep_positions(form)
        finally:
            index.drop_idle(form)  # which does nothing to one with a callback

    def _check_room(self, values: int, admit: Admit) -> None:
        """Raises ``Refused`` where so many values more are too much for one turn, or for the client."""
        admit(0, FILED_BYTES * values)
        if self._filed_values and self._filed_values + values > FILED_VALUES:
            said = f"the expectations of one turn compare {self._filed_values + values} facts"
            raise Refused(
                "limit", f"{said} by different positions, at most {FILED_VALUES} are filed for them"
            )

    def close(self) -> None:
        """Drops what was filed for this turn alone; may be called again."""
        self._conditions.drop(self._filed, self._ignored)

    def _ignored(self, _event: Event, _row: object) -> None:
        """Is called with the changes of patterns that are only filed."""

    # -- in the step of the commit --------------------------------------------------------------------

    def decide(self) -> bool:
        """Raises ``ExpectationFailed`` for the first expectation that does not hold now, ``Refused`` for an
        expectation that cannot be decided within the limits; returns False, undecided, if more must be
        prepared.

        O(expectations + rows expected), and ``JUDGED`` facts and changes.
        """
        left, one_by_one, index = self._hosted.limits.expected_facts, JUDGED, self._conditions.index
        for condition in self._expected:
            if condition.number in self._refused:
                raise self._refused[condition.number]
            if condition.expected.kind == UNCHANGED:
                if self._hosted.commits.recent.lacks(_since(condition)):
                    return False
                if not self._hosted.commits.recent.is_sorted(one_by_one):
                    return False
                before = self._seen.get(condition.number, (0, 0))[1]
                if self._look(condition, one_by_one, left):
                    return False
                looked_at = self._seen[condition.number][1]
                left, one_by_one = left - looked_at, one_by_one - (looked_at - before)
                continue
            rows = index.rows(condition.form)
            if index.is_filling(condition.form):
                return False
            if rows is None:
                alike = self._conditions.alike(condition.form)
                if alike > min(one_by_one, QUICK):
                    return False
                one_by_one -= alike
                found, is_whole = index.matches_among(condition.form, left)
                rows = {keys(row): row for row in found}
            else:
                is_whole = len(rows) <= left
            if condition.expected.kind == ABSENT:
                if rows:
                    raise _found(condition, rows.values(), len(rows))
            elif is_whole:
                wanted = self._wanted.get(condition.number)
                if wanted is None:
                    wanted = frozenset(map(keys, _rows_expected(condition)))
                if rows.keys() != wanted:
                    raise _found(condition, rows.values(), len(rows))
            if not is_whole:
                raise too_much(condition, left)
            left -= len(rows)
        return True

    def decide_at_once(self) -> bool:
        """Does the same if little was expected and little is to be compared; else returns False."""
        if len(self._expected) > AT_ONCE:
            return False
        if any(
            each.expected.kind == EXACTLY and len(_rows_expected(each)) > QUICK for each in self._expected
        ):
            return False
        return self.decide()

    def _look(self, condition: Condition, most: int, limit: int) -> bool:
        """Looks at changes of facts that match; returns True if there are more than ``most``.

        Exact, since it looks at every change of facts of the pattern's class after the epoch: changes that
        are no longer in memory are refused, not assumed.
        """
        hosted, since = self._hosted, _since(condition)
        recent: RecentEpochs = hosted.commits.recent
        wanted = f"expectation {condition.number}: changes after epoch {since} are wanted"
        if since > hosted.space.epoch:
            raise Refused("epoch-ahead", f"{wanted}, the newest epoch is {hosted.space.epoch}")
        if hosted.log.lost(since):
            raise Refused("epoch-lost", f"epoch {since} was never acknowledged and was lost in a crash")
        at, looked_at = self._seen.get(condition.number, (since, 0))
        if at < recent.after:
            rest = f"those after epoch {recent.after} are in memory; read the pattern again, and expect that"
            raise Refused("epoch-gone", f"{wanted}, {rest} it is unchanged since the epoch that is read then")
        form = condition.form
        matches = match_reader(form)
        try:
            for number, _, added, _, removed in recent.of_class(at, form.shape[0][1] if form.shape else None):
                if most <= 0:
                    return True
                looked_at += len(added) + len(removed)
                most -= len(added) + len(removed)
                if looked_at > limit:
                    raise too_much(condition, limit)
                came, went = _rows(map(matches, added)), _rows(map(matches, removed))
                if came or went:
                    what = f"epoch {number} changed it: {len(came)} came and {len(went)} went"
                    raise condition.failed(what, [*came, *went], len(came) + len(went), number)
                at = number
        finally:
            self._seen[condition.number] = at, looked_at
        return False


def reading(packed: Sequence[Value], permit: Permit) -> Steps[list[Condition]]:
    """Returns the expectations of a packet, in steps; raises ``Refused`` or ``UsageError`` for expectations
    that are not allowed."""
    expected: list[Condition] = []
    for condition in Condition.reading(packed):
        if not permit.open:
            permit.check_observe(condition.expected.pattern)
        expected.append(condition)
        yield
    return expected


def _since(condition: Condition) -> int:
    since = condition.expected.argument
    assert isinstance(since, int)  # as its form was checked
    return since


def _rows_expected(condition: Condition) -> tuple[Captures, ...]:
    rows = condition.expected.argument
    assert isinstance(rows, tuple)  # as its form was checked
    return rows  # type: ignore[return-value]  # as above


def _found(condition: Condition, rows: Iterable[Captures], count: int) -> Refused:
    """Returns the refusal of an expectation, with the first facts found in place of the expected ones."""
    first = list(islice(rows, FOUND_ROWS))
    return condition.failed(f"found {rows_text(first, count)}", first, count)


def _rows(found: Iterable[Captures | None]) -> list[tuple[Value, ...]]:
    return [row for row in found if row is not None]
