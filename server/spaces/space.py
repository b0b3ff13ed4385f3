"""A hosted space: one dataspace of the daemon, with its log, its sessions and its leases.

Each space has its own epochs and its own directory, and nothing is atomic across two spaces; so the state of
one space is here, and the shared state is in the daemon.  Every turn passes through ``commit``: the space
makes the epoch, the log stores it, and the connections with something to send are flushed when the current
batch of packets is done.

Always: one task at a time touches the space; an epoch is acknowledged only when it is on disk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import trio

from dataspace.errors import Closed, Refused
from dataspace.foreign import tame
from dataspace.kernel.actions import RETRACT, Action
from dataspace.kernel.changes import Epoch
from dataspace.kernel.turns import Admit, Part
from dataspace.rules.language.hosted import Functions
from dataspace.wire.features import SYSTEM
from relay.delivery.gate import Gate
from relay.delivery.memory import MemoryBudget
from relay.following.following import FollowedLog, Following
from relay.groups.memory import ItemMemory
from relay.log.log import Log
from relay.log.notes import Note, Notes
from relay.log.retention import Retention
from relay.log.writer import GroupCommit, retain
from relay.store.errors import LogFailed
from relay.store.staging import Staging
from server.config.model import COMMITTED, Limits, SpaceConfig
from server.config.principals import check_name
from server.config.rules import RuleText
from server.home import Home
from server.lane import Lane
from server.owners.accounts import Account
from server.owners.holdings import Holdings
from server.owners.leases import Leases
from server.owners.turn_numbers import Client, Clients
from server.spaces.conditions import Conditions
from server.spaces.endings import Departures, Endings, note_unended
from server.spaces.groups.groups import SpaceGroups
from server.spaces.groups.topics import read_all
from server.spaces.keeping import keep
from server.spaces.leader import FilledSpace, Leader, filled_from, follow, no_space
from server.spaces.ledger import Ledgers, Publishers
from server.spaces.packed import Prepared
from server.spaces.recalling import Recalling, find_turns
from server.spaces.rules import OWNER, HostedFlows, Suspensions, hold_from_now, hold_from_start, made
from server.spaces.searches import Searches
from server.spaces.sessions import ENDING, Returning, Sessions
from server.spaces.showing import Showing
from server.spaces.traces import TRACED, Recorder
from server.spaces.windows import RuleTurns, rebuild_windows, with_windows
from server.system import SystemSpace

logger = logging.getLogger("dataspace")


def now() -> int:
    """The time in microseconds since 1970 UTC."""
    return time.time_ns() // 1000


GROUPS_PART: Final = 4
"""Items of groups may take one part in so many of the memory for what waits for observers."""


class HostedSpace:
    """One space, its past, and what its sessions share."""

    def __init__(
        self,
        settings: SpaceConfig,
        log: Log | FollowedLog,
        *,
        limits: Limits,
        home: Home,
        flows: HostedFlows,
        functions: Functions,
        flush: Callable[[], None],
        names: Collection[str],
        lane: Lane,
        system: SystemSpace,
        admit: Admit,
        room: MemoryBudget,
        returning: Returning,
        recorder: Recorder | None = None,
        filled: FilledSpace | None = None,
    ) -> None:
        """``flush`` is called after turns; ``names`` are the names of all spaces of the daemon.

        With a ``FollowedLog`` the space follows it, until ``lead``.
        What takes long is done in the ``lane``.  ``admit`` raises ``Refused`` for turns that add more than
        the daemon has memory for; ``room`` is the memory for what waits for observers.  ``returning`` decides
        on sessions of an earlier daemon.  The ``recorder`` has the traces of turns.  ``filled`` is the space
        with the state of the log, if the caller has recovered that.
        """
        self._admit = admit
        self._home = home
        self._returning = returning
        self._recorder = recorder
        self.settings = settings
        self.limits = limits
        self.flush = flush
        self.lane = lane
        self._names = names
        self.name = settings.name
        self.log: Log | FollowedLog = log
        self.identity = log.identity
        self.leader = Leader(settings.name)
        """The daemon that takes turns while the space follows."""
        self.hint: Callable[[], None] | None = None
        """Tells followers that there is more on disk, while there are some."""
        self.term = log.term
        self.publishing = trio.Lock()
        self._withdrawals: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()
        self.recalling = Recalling()
        self.sessions = Sessions(self)
        self._room = room
        self.group_items = ItemMemory(self._group_bytes(limits))
        self.groups = SpaceGroups(self)
        self.leases = Leases(
            self, most=limits.leases, longest=limits.lease_seconds, name_bytes=limits.name_bytes
        )
        self.space, state = filled or filled_from(log, settings)
        self.searches = Searches(self.space)
        self.space.rule_quotas.exempt = frozenset({OWNER})
        self.conditions = Conditions(self.space.index)
        self.space.rules.clock = time.perf_counter_ns
        self.space.rules.functions = functions
        self.rule_turns = RuleTurns(self.space, home.now, self._turn, self._stop_if_damaged, lane)
        self.clock = self.rule_turns.now
        """The time of new epochs, in microseconds since 1970."""
        self.suspensions = Suspensions(settings.name, self.space.rules, system)
        self.gate = Gate(room)
        self.endings = Endings(lane, lambda: self.commits.wait_room(), step=self._retract_some, flush=flush)
        self.prepared = Prepared()
        self.publishers = Publishers()
        self.holdings = Holdings()
        self.space.rule_quotas.admit = self.holdings.admit_rules
        self.reader_accounts: dict[str, Account] = {}
        self.ledgers = Ledgers(self.space)
        self._departures = Departures(self._end_together, lambda owner: len(self.space.claims(owner)))
        self.flows = flows
        self.commits: GroupCommit | Following
        if isinstance(log, FollowedLog):
            self.commits = follow(log, self.space, state, self.leader, flush)
            self.showing = Showing(self.space, self.commits, self.gate, COMMITTED)  # all of that is on disk
            self.clients = Clients(self.commits.state.clients, most=limits.identities)
        else:
            self.lead(log, self.open_staging())

    # -- roles ----------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """True if turns are made here; false while the log of another daemon is followed."""
        return isinstance(self.log, Log)

    def check_leads(self) -> None:
        """Raises ``Refused``, with the address of the leader, if no turn is made here."""
        if not self.leads:
            raise self.leader.refusal()

    @property
    def own_log(self) -> Log:
        """The log that this daemon writes; raises as ``check_leads``."""
        if isinstance(self.log, Log):
            return self.log
        raise self.leader.refusal()

    @property
    def writer(self) -> GroupCommit:
        """What writes that log; raises as ``check_leads``."""
        if isinstance(self.commits, GroupCommit):
            return self.commits
        raise self.leader.refusal()

    def open_staging(self) -> Staging:
        """Opens the staged batches of this space; blocks.  Raises ``LogFailed``."""
        limits = self.limits
        tables = self._home.open_staged(self.name)
        return Staging(tables, limit=limits.staged_bytes, kept=limits.staged_seconds)

    def lead(self, log: Log, staging: Staging) -> None:
        """Makes turns from now on, over the log whose state the space has.

        Sessions with grace and leases have their whole time from now on.  The claims of other sessions and of
        actors end in one epoch.
        """
        limits, followed = self.limits, getattr(self, "commits", None)
        self.log, self.term = log, log.term
        self.commits = commits = GroupCommit(
            log, after_group=self._after_group, state=self.space.all_claims, gate=self.gate
        )
        self.space.submit_timed = commits.submit
        self.showing = Showing(self.space, commits, self.gate, self.settings.show)
        if isinstance(followed, Following):
            log.clients, log.sessions = followed.state.clients, followed.state.sessions
            log.groups = followed.state.groups
            commits.recent = followed.recent
        self.staging = staging
        held = {each.client for each in log.sessions.values()}
        self.clients = Clients(log.clients, most=limits.identities, name_bytes=limits.name_bytes, held=held)
        self.space.epoch = max(self.space.epoch, log.next_epoch - 1)
        commits.latest = Epoch(self.space.epoch, self.space.time)  # a snapshot may come before any turn
        rebuild_windows(self.space, log, commits)
        kept = self.sessions.recover(log.sessions, self._returning)
        gone = [each for each in self.space.owners() if each.startswith(ENDING) and each not in kept]
        made(self.space, lambda: self.space.end(gone, self.clock(), submit=commits.submit))
        self.leases.recover(self.space.owners())
        for state in self.sessions.suspended():
            self._count(state.owner, state.account)
        was_clean = log.clean and not isinstance(followed, Following) and not log.sessions
        self.groups.lead(log.groups, was_clean=was_clean, awaited=self.sessions.awaited())
        self.flows.attach(self.space)
        hold_from_start(self.space, self.settings.rules, self.clock, commits.submit)
        if isinstance(followed, Following):
            followed.succeed(commits)
        logger.info(
            "space %s: epoch %d, %d facts, %d sessions may come back, %d owners did not survive",
            *(self.name, self.space.epoch, len(self.space.index), self.sessions.waiting, len(gone)),
        )

    def _after_group(self) -> None:
        if self.groups.by_name:
            self.groups.deliver()
        if self.hint is not None:
            self.hint()
        self.flush()

    def note(self, note: Note) -> None:
        """Has the log note something before the next epoch."""
        self.writer.note(self.space.epoch, self.space.time, note)

    def take_rules(self, given: Sequence[Path | RuleText]) -> tuple[bool, list[str]]:
        """Makes these the rules that the daemon holds, in one turn.

        Returns whether others were held before, and the errors of the rules that are not taken.  Raises
        ``Refused``, and nothing has happened, where the turn is beyond a limit.
        """
        return hold_from_now(self.space, given, partial(self.commit, own=True))

    def show_durable(self) -> int:
        """Shows observers only epochs on disk from now on, because another process may take over the log.

        Returns the newest epoch that they may have been shown before: once it is on disk, nothing that was
        shown can be lost (``commits.wait_durable``).  No observation has a gap or a repetition.  Where the
        configuration says ``show = "committed"``, that stays.  May be called again.
        """
        self.showing.follow()
        return self.space.epoch

    def relimit(self, limits: Limits, its: SpaceConfig) -> None:
        """Takes the limits of the daemon, and the limits, the retention and ``show`` of the space."""
        self.limits, own = limits, its.limits
        self.settings = replace(self.settings, limits=own, retention=its.retention, show=its.show)
        if self.leads:
            self.showing.take(its.show)
        self.space.limits = own  # what it holds stays, and cannot grow; its rules keep their own limits
        self.space.interests.relimit(own)
        self.space.rule_quotas.relimit(own)
        if self.space.damage is None:  # else no turn may have any action
            self.space.most_actions = own.actions_per_turn
        self.group_items.limit = self._group_bytes(limits)
        self.leases.relimit(most=limits.leases, longest=limits.lease_seconds)
        if self.leads:
            self.staging.relimit(limits.staged_bytes)

    def _group_bytes(self, limits: Limits) -> int:
        """Returns what the items of groups may take in memory."""
        return min(limits.group_bytes, self._room.limit // GROUPS_PART)

    def give_back(self) -> None:
        """Counts nothing any more for any account, and states nothing: another daemon leads the space."""
        for each in (self.sessions, self.holdings, self.leases, self.clients, self.suspensions, self.groups):
            each.clear()
        while self.reader_accounts:
            self.reader_accounts.popitem()[1].give("readers")
        self.staging.close()

    # -- life -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ends sessions and leases in time, makes the turns of rules, deletes epochs past retention.

        For a space that leads; it runs until cancelled.
        """
        log, commits = self.own_log, self.writer
        async with trio.open_nursery() as nursery:
            start: Callable[..., None] = partial(nursery.start_soon, keep, self.name)  # type: ignore[arg-type]  # whose types are of each call
            start("sessions", self.sessions.run)
            start("leases", self.leases.run)
            start("groups", self.groups.run)
            start("readers of groups", read_all, self.groups)
            start("staged batches", self.staging.run)
            start("endings", self.endings.run)
            start("departures", self._departures.run, self.lane, self.name, self.flush)
            start("turns of rules", self.rule_turns.run, commits.wait_room)
            start("flows", self.flows.run, self._turn)
            start("retention", retain, log, commits, self._retention, self.clock)

    def _retention(self) -> Retention:
        return with_windows(self.settings.retention, self.space)

    def _note_due(self) -> None:
        """Has the turns of rules made after a turn, if there is one to make, or one earlier than planned."""
        rules = self.space.rules
        if rules.due < self.rule_turns.planned or rules.pending:
            self.rule_turns.due.set()

    def _turn(self, time: int | None = None) -> None:
        """Makes a turn for rules or flows, at a time; without it, now."""
        self.end_due()
        try:
            self.space.advance(self.clock() if time is None else time, submit=self.commits.submit)
        except BaseException:
            self._stop_if_damaged()
            raise
        self.flush()

    def resume_rule(self, name: str) -> str:
        """Carries out again what is suspended under a name, and returns what came of it."""
        rules = self.space.rules
        if not any(each == name for each, _, _ in rules.suspended()):
            raise Refused("no-rule", f"no rule {name!r:.80} is suspended in space {self.name!r}")
        rules.resume(name)
        self._turn()
        self._note_due()
        reasons = [reason for each, _, reason in rules.suspended() if each == name]
        if reasons:
            raise Refused("suspended", f"{tame(name)} is suspended again: {reasons[0]:.400}")
        return f"{tame(name)} is carried out again"

    # -- turns ----------------------------------------------------------------------------------------

    def commit(
        self,
        owner: str,
        actions: Sequence[Action],
        others: Sequence[Part] = (),
        *,
        client: Client | None = None,
        sequence: int = 0,
        account: Account | None = None,
        on_durable: Callable[[Epoch], None] | None = None,
        publication: bool = False,
        own: bool = False,
        notes: Notes = (),
        time: int | None = None,
    ) -> Epoch:
        """Commits one turn; ``on_durable`` is called with its epoch once that is on disk.

        ``others`` are further owners with their actions, in the same epoch; ``notes`` go to the log with
        it.  ``own`` is a turn of the daemon or of an actor that it hosts: it may have more actions than a
        turn of a client.  ``time`` is when the turn is, as ``until_now`` said, where something was looked at
        before.  What the turn asserts counts for the ``account``, if there is one.  A turn of a client that a
        later one has overtaken while it waited is refused (``not-applied``): another connection may use the
        same numbers.
        Raises ``Refused`` or ``ProtocolError``, and nothing has happened.  The turn counts once the log has
        taken it: after any other exception before that nothing has happened either.
        """
        if self._departures.noted or self.endings.left:
            self.finish_ending(owner)
        commits = self.commits
        if commits.full is not None:
            self._check_room(actions, internal=client is None and not publication)
        commits.check_open()
        check_name("an owner", owner, self.limits.name_bytes)
        if client is not None:
            client.begin(sequence, self.writer, self.space.epoch, self.space.time)
        if not publication:
            self.ledgers.forget(owner)
        for each, more in others:
            self.finish_ending(each)
            if commits.full is not None:
                self._check_room(more, internal=False)
            check_name("an owner", each, self.limits.name_bytes)
            self.ledgers.forget(each)
        if self.sessions.unnoted:
            self.sessions.note((owner, actions), *others)
        self.holdings.writer = account
        before = commits.latest
        submit: Callable[[Epoch], None] = partial(commits.submit, on_durable=on_durable, notes=notes)
        if self._recorder is not None and client is not None and (trace := TRACED.get()) is not None:
            submit = self._recorder.submitting(trace, self.writer, self.space.interests, on_durable, notes)
        try:
            epoch = self.space.commit(
                owner,
                actions,
                self.clock() if time is None else time,
                others=others,
                client=client.name if client else None,
                sequence=sequence,
                publication=publication,
                own=own,
                submit=submit,
                admit=self._admit if account is None else account.admit,
                in_form=client is not None,
            )
        except BaseException:
            self._stop_if_damaged()
            raise
        finally:
            if commits.latest is not before:  # whatever was raised since
                if client is not None:
                    client.applied(sequence, commits.latest.number)
                if self.searches.begun:
                    self.searches.note(commits.latest.claims)
        if account is not None:
            self._count(owner, account)
            for each, _ in others:
                self._count(each, account)
        self._note_due()
        return epoch

    def _count(self, owner: str, account: Account) -> None:
        """Counts what an owner claims for the account of its last turn."""
        self.holdings.note(owner, account, *self.space.held(owner))
        if owner in self.space.rule_quotas:
            self.holdings.note_rules(owner, account, *self.space.rules_held(owner))

    def finish_ending(self, owner: str) -> None:
        """Retracts at once what is left of an owner of this name that has ended."""
        if self._departures.noted:
            self._departures.due_before(owner)
        if owner in self.endings.left:
            self.endings.finish(owner)

    def _check_room(self, actions: Sequence[Action], *, internal: bool) -> None:
        """Refuses a turn while the disk is full, unless it only retracts or is the daemon's own."""
        if internal and not self.commits.is_behind:
            return
        if any(action[0] != RETRACT for action in actions):
            raise Refused(
                "disk-full", f"the disk is full, and turns that add facts are refused: {self.commits.full}"
            )

    def end_owners(self, owners: Sequence[str]) -> None:
        """Retracts in one turn all claims of some owners, after the owners that ``end_soon`` has noted;
        raises nothing.

        Claims of an owner beyond a turn's limit go in turns of their own, from now on (``Endings``).  If one
        turn fails, which is a bug, each of them is ended alone, once more.  An owner that cannot be ended
        keeps its claims, which is logged; they go with the next start of the daemon.
        """
        if self.leads:
            self.end_due()
            self._end_together(owners)

    def end_soon(self, owners: Sequence[str]) -> None:
        """Like ``end_owners``, but with the next ``end_due`` or before the next turn, whichever comes first.

        Owners that end in the same moment share one turn; where they are many, they end in the lane.
        """
        if self.leads:  # else nothing is owned here
            self._departures.soon(owners)

    def members_back(self, owner: str) -> None:
        """Has no group wait for members of a session any more, which has all its streams again."""
        if self.leads:
            self.groups.awaited.expect_no_more(owner)

    def members_left(self, owner: str, *, blame: bool) -> None:
        """Gives back what the members of a session have from groups; with ``blame`` they have failed."""
        if self.leads and self.groups.by_name:
            self.groups.session_ended(owner, blame=blame)

    def end_due(self) -> None:
        """Retracts what owners claim for which ``end_soon`` was called; raises nothing."""
        if self._departures.noted:
            self._departures.due()

    async def end_in_turns(self) -> None:
        """Does ``end_due``, in the lane where that is much."""
        await self._departures.in_turns(self.lane, self.name)

    def _end_together(self, owners: Sequence[str], *, again: bool = False) -> None:
        """Retracts what owners claim that have ended in one moment; after an error once ``again``, singly."""
        try:
            self.commits.check_open()
            most = self.space.limits.actions_per_turn
            large = [owner for owner in owners if len(self.space.claims(owner)) > most]
            for owner in owners:
                self.ledgers.forget(owner)
            self.sessions.note_ended(owners)
            small = [each for each in owners if each not in large]
            self.space.end(small, self.clock(), submit=self.commits.submit)
            for owner in large:
                self.endings.begin(owner)
            for owner in owners:
                self.holdings.end(owner)
            self._note_due()
        except (LogFailed, Closed):
            self._stop_if_damaged()  # else the daemon is ending already, and the next one retracts them
        except Exception:  # noqa: BLE001  # a fence around the end of an owner: a defect ends nothing else
            self._stop_if_damaged()
            note_unended(owners, self.space, None if again else partial(self._end_together, again=True))

    def _retract_some(self, owner: str, most: int) -> bool:
        """Retracts some of what an ended owner claims, at most so many facts; True if any are left.

        If it fails, the rest stays until the next start of the daemon, as for ``end_owners``.
        """
        most = min(most, self.space.limits.actions_per_turn)
        actions = [(RETRACT, handle) for handle in islice(self.space.claims(owner), most)]
        self.ledgers.forget(owner)
        try:
            self.commits.check_open()
            if actions:
                self.space.commit(owner, actions, self.clock(), submit=self.commits.submit)
                self._note_due()
        except (LogFailed, Closed):
            self._stop_if_damaged()
            return False
        except Exception:  # noqa: BLE001  # as in end_owners
            self._stop_if_damaged()
            note_unended([owner], self.space)
            return False
        return bool(self.space.claims(owner))

    def _stop_if_damaged(self) -> None:
        """Ends the daemon, without a snapshot, if the space differs from its log."""
        if self.space.damage is not None and self.commits.failure is None:
            logger.critical("space %s: a failed turn could not be undone, the daemon ends", self.name)
            self.writer.fail(f"space {self.name} is damaged: {self.space.damage!r:.200}")

    def check_space(self, name: str) -> None:
        """Raises ``Refused`` for the name of another space than this one."""
        if name == self.name:
            return
        if name == SYSTEM:
            raise Refused("read-only", f"space {SYSTEM!r} can only be observed, and only now")
        if name in self._names:
            raise Refused(
                "no-space", f"this session is about space {self.name!r}: {name!r} needs another one"
            )
        raise no_space(name, self._names)

    async def find_turns(self, client: Client, wanted: Collection[int]) -> dict[int, int]:
        """Returns the epochs of old turns, 0 for those not applied; those not known any more are left out.

        Forgotten turns are looked up in the log, in one pass of a thread: O(log) at worst.
        """
        return await find_turns(self.commits, self.log, self.lane.work(client.name), client, wanted)

    def withdrawing(self, owner: str) -> trio.Lock:
        """Returns the lock under which claims of an owner are searched for and taken back.

        A search takes several slices of the lane, and two of one owner would look at the same claims.  A lock
        exists only while a request holds it or waits for it.
        """
        return self._withdrawals.setdefault(owner, trio.Lock())
