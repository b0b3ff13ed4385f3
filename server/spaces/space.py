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
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import trio

from dataspace.errors import Closed, Refused
from dataspace.foreign import tame
from dataspace.kernel.actions import RETRACT, Action
from dataspace.kernel.changes import Epoch
from dataspace.kernel.turns import Admit, Part
from dataspace.rules.language.hosted import Functions
from dataspace.wire.features import SYSTEM
from relay.delivery.gate import DurableGate
from relay.delivery.memory import MemoryBudget
from relay.following.following import FollowedLog, Following
from relay.log.log import Log
from relay.log.notes import Note, Notes
from relay.log.retention import Retention
from relay.log.writer import GroupCommit, retain
from relay.space_registers import KnownSessions
from relay.store.errors import DISK_FAILED, LogDamaged, LogFailed
from relay.store.staging import Staging
from server.config.model import COMMITTED, Limits, SpaceConfig
from server.config.principals import check_name
from server.config.rights import Permit
from server.config.rules import RuleText
from server.home import Home
from server.lane import Lane
from server.owners.accounts import Account
from server.owners.holdings import AccountTotals
from server.owners.leases import Leases
from server.owners.publishers import Publishers
from server.owners.turn_numbers import Client, Clients
from server.parts import Done, PartKey, Parts, Report, SpacePart
from server.spaces.endings import Departures, Endings, note_unended
from server.spaces.keeping import keep
from server.spaces.recalling import Recalling, find_turns
from server.spaces.roles import FilledSpace, Followed, Leader, Leading, filled_from, follow
from server.spaces.rules import OWNER, HostedFlows, Suspensions, hold_from_now, hold_from_start, made
from server.spaces.sessions import ENDING, Returning, Sessions
from server.spaces.traces import TRACED, Recorder
from server.spaces.turns.conditions import Conditions
from server.spaces.turns.publishing import Publishing
from server.spaces.turns.searches import Searches
from server.spaces.visibility import Visibility
from server.spaces.windows import RuleTurns, rebuild_windows, with_windows
from server.system import SystemSpace

logger = logging.getLogger("dataspace")


def now() -> int:
    """The time in microseconds since 1970 UTC."""
    return time.time_ns() // 1000


NOTHING: Final = Report()

MadeParts: TypeAlias = "Sequence[tuple[PartKey[Any], Callable[[HostedSpace], SpacePart]]]"
"""Keys of parts, and what makes them for a space."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a daemon gives all its spaces."""

    home: Home
    names: Collection[str]
    """The names of all spaces."""
    functions: Functions
    flush: Callable[[], None]
    """Called after turns."""
    lane: Lane
    """Where what takes long is done."""
    system: SystemSpace
    admit: Admit
    """Raises ``Refused`` for turns that add more than there is memory for."""
    admit_reader: Admit
    """The same for interests."""
    budget: MemoryBudget
    """The memory for what waits for observers."""
    returning: Returning
    """Decides on sessions of an earlier daemon."""
    recorder: Recorder | None = None
    """The traces of turns."""
    parts: MadeParts = ()
    """What features keep in each space."""


class HostedSpace:
    """One space, its past, and what its sessions share."""

    def __init__(
        self,
        settings: SpaceConfig,
        log: Log | FollowedLog,
        limits: Limits,
        daemon: Surroundings,
        flows: HostedFlows,
        filled: FilledSpace | None = None,
    ) -> None:
        """With a ``FollowedLog`` the space follows it, until ``lead``.

        ``filled`` is the space with the state of the log, if the caller has recovered that.
        """
        self._daemon = daemon
        self.settings = settings
        self.limits = limits
        self.flush = flush = daemon.flush
        self.lane = lane = daemon.lane
        self.name = settings.name
        self.identity = log.identity
        self.leader = Leader(settings.name)
        """The daemon that takes turns while the space follows."""
        self.hint: Callable[[], None] | None = None
        """Tells followers that there is more on disk, while there are some."""
        self.recalling = Recalling()
        self.sessions = Sessions(self)
        self.budget = daemon.budget
        self.leases = Leases(
            self, most=limits.leases, longest=limits.lease_seconds, name_bytes=limits.name_bytes
        )
        filled = filled or filled_from(log, settings)
        self.space = filled[0]
        self.searches = Searches(self.space)
        self.space.rule_quotas.exempt = frozenset({OWNER})
        self.conditions = Conditions(self.space.index)
        self.space.rules.clock = time.perf_counter_ns
        self.space.rules.functions = daemon.functions
        self.rule_turns = RuleTurns(self.space, daemon.home.now, self._turn, self._stop_if_damaged, lane)
        self.clock = self.rule_turns.now
        """The time of new epochs, in microseconds since 1970."""
        self.suspensions = Suspensions(settings.name, self.space.rules, daemon.system)
        self.gate = DurableGate(daemon.budget)
        self.endings = Endings(lane, lambda: self.commits.wait_room(), step=self._retract_some, flush=flush)
        self.holdings = AccountTotals()
        self.space.rule_quotas.admit = self.holdings.admit_rules
        self.reader_accounts: dict[str, Account] = {}
        self.publishing = Publishing(self.space)
        self.publishers = Publishers()
        self._departures = Departures(self._end_together, lambda owner: len(self.space.claims(owner)))
        self.flows = flows
        self.role: Leading | Followed
        self.parts: Final = Parts()
        self._each_part: Final = [make(self) for _, make in daemon.parts]
        for (key, _), part in zip(daemon.parts, self._each_part, strict=True):
            self.parts.add(key, part, part.used)
        if isinstance(log, FollowedLog):
            following = follow(log, *filled, self.leader, flush)
            clients = Clients(following.state.clients, most=limits.identities)
            visibility = Visibility(self.space, following, self.gate, COMMITTED)  # all of that is on disk
            self.role = Followed(log, following, clients, visibility)
        else:
            self._begin_leading(log, self.open_staging(), None)

    # -- roles ----------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """True if turns are made here; false while the log of another daemon is followed."""
        return self.role.leads

    @property
    def leading(self) -> Leading:
        """What a leader has; raises ``Refused``, with the address of the leader, if no turn is made here."""
        role = self.role
        if role.leads:
            return role
        raise self.leader.refusal()

    @property
    def followed(self) -> Followed:
        """What a follower has; the space follows, as its caller knows."""
        assert not self.role.leads
        return self.role

    @property
    def level(self) -> int:
        """The level of features in force (``relay/store/levels.py``)."""
        return self._daemon.home.level()

    def check_leads(self) -> None:
        """Raises as ``leading`` if no turn is made here."""
        if not self.role.leads:
            raise self.leader.refusal()

    @property
    def log(self) -> Log | FollowedLog:
        """The log that the space has its state from."""
        return self.role.log

    @property
    def commits(self) -> GroupCommit | Following:
        """What writes that log, or follows it."""
        return self.role.commits

    @property
    def clients(self) -> Clients:
        """The turn numbers of every client."""
        return self.role.clients

    def check_not_of_log(self, failure: LogFailed | LogDamaged) -> None:
        """Raises a failure of the leader's log, with which this daemon ends.

        What of a request is on disk then is not known: so nobody is told that nothing is, and the client asks
        the next daemon.
        """
        if failure.code == DISK_FAILED and self.leads and self.leading.commits.failure is not None:
            raise failure

    @property
    def visibility(self) -> Visibility:
        """What clients are shown."""
        return self.role.visibility

    @property
    def term(self) -> int:
        """The term of the log, which no other start has; the names of sessions contain it."""
        return self.role.log.term

    def open_staging(self) -> Staging:
        """Opens the staged batches of this space; blocks.  Raises ``LogFailed``."""
        limits = self.limits
        tables = self._daemon.home.open_staged(self.name)
        return Staging(tables, limit=limits.staged_bytes, kept=limits.staged_seconds)

    def lead(self, log: Log, staging: Staging, unsaved: int = 0) -> None:
        """Makes turns from now on, over the log whose state the space has; ``unsaved`` are its changes since
        the newest snapshot.

        Sessions with grace and leases have their whole time from now on.  The claims of other sessions and of
        actors end in one epoch.
        """
        before = self.followed
        self._begin_leading(log, staging, before, unsaved)
        before.commits.succeed(self.leading.commits)

    def _begin_leading(self, log: Log, staging: Staging, before: Followed | None, unsaved: int = 0) -> None:
        limits, space = self.limits, self.space
        commits = GroupCommit(
            log, after_group=self._after_group, state=space.all_claims, gate=self.gate, unsaved=unsaved
        )
        if before is not None:
            log.clients, log.registers = before.commits.state.clients, before.registers
            commits.recent = before.commits.recent
        known = log.registers.of(KnownSessions)
        held = {each.client for each in known.values()}
        clients = Clients(log.clients, most=limits.identities, name_bytes=limits.name_bytes, held=held)
        visibility = Visibility(space, commits, self.gate, self.settings.show)
        if before is not None:  # there are several daemons, and others say only later that they follow
            visibility.follow()
        self.role = Leading(log, commits, clients, visibility, staging)
        space.submit_timed = commits.submit
        space.epoch = max(space.epoch, log.next_epoch - 1)
        commits.latest = Epoch(space.epoch, space.time)  # a snapshot may come before any turn
        rebuild_windows(self.space, log, commits)
        kept = self.sessions.recover(known, self._daemon.returning)
        gone = [each for each in self.space.owners() if each.startswith(ENDING) and each not in kept]
        made(self.space, lambda: self.space.end(gone, self.clock(), submit=commits.submit))
        self.leases.recover(self.space.owners())
        for state in self.sessions.suspended():
            self._count(state.owner, state.account)
        was_clean = log.clean and before is None and not known
        awaited = self.sessions.awaited()
        for part in self._each_part:
            part.lead(log, was_clean=was_clean, awaited=awaited)
        self.flows.attach(self.space)
        hold_from_start(self.space, self.settings.rules, self.clock, commits.submit)
        logger.info(
            "space %s: epoch %d, %d facts, %d sessions may come back, %d owners did not survive",
            *(self.name, self.space.epoch, len(self.space.index), self.sessions.waiting, len(gone)),
        )

    def _after_group(self) -> None:
        for part in self._each_part:
            if part.is_busy:
                part.after_group()
        if self.hint is not None:
            self.hint()
        self.flush()

    def queue_note(self, note: Note) -> None:
        """Queues a note for the log, before the next epoch."""
        self.leading.commits.queue_note(self.space.epoch, self.space.time, note)

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
        self.visibility.follow()
        return self.space.epoch

    def relimit(self, limits: Limits, settings: SpaceConfig) -> None:
        """Takes the limits of the daemon, and the limits, the retention and ``show`` of the space."""
        self.limits, own = limits, settings.limits
        self.settings = replace(self.settings, limits=own, retention=settings.retention, show=settings.show)
        self.space.limits = own  # what it holds stays, and cannot grow; its rules keep their own limits
        self.space.interests.relimit(own)
        self.space.rule_quotas.relimit(own)
        if self.space.damage is None:  # else no turn may have any action
            self.space.most_actions = own.actions_per_turn
        for part in self._each_part:
            part.relimit()
        self.leases.relimit(most=limits.leases, longest=limits.lease_seconds)
        if self.role.leads:
            self.role.visibility.change_setting(settings.show)
            self.role.staging.relimit(limits.staged_bytes)

    def give_back(self) -> None:
        """Counts nothing any more for any account, and states nothing: another daemon leads the space."""
        for each in (self.sessions, self.holdings, self.leases, self.clients, self.suspensions):
            each.clear()
        for part in self._each_part:
            part.clear()
        while self.reader_accounts:
            self.reader_accounts.popitem()[1].release("readers")
        self.leading.staging.close()

    # -- life -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ends sessions and leases in time, makes the turns of rules, deletes epochs past retention.

        For a space that leads; it runs until cancelled.
        """
        role = self.leading
        async with trio.open_nursery() as nursery:
            start: Callable[..., None] = partial(nursery.start_soon, keep, self.name)  # type: ignore[arg-type]  # whose types are of each call
            start("sessions", self.sessions.run)
            start("leases", self.leases.run)
            for name, task in [task for part in self._each_part for task in part.tasks()]:
                start(name, task)
            start("staged batches", role.staging.run)
            start("endings", self.endings.run)
            start("departures", self._departures.run, self.lane, self.name, self.flush)
            start("turns of rules", self.rule_turns.run, role.commits.wait_room)
            start("flows", self.flows.run, self._turn)
            start("retention", retain, role.log, role.commits, self._retention, self.clock)

    def _retention(self) -> Retention:
        return with_windows(self.settings.retention, self.space)

    def _note_due(self) -> None:
        """Schedules the next turn of rules after a turn, if it is due, or due earlier than planned."""
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
        """Resumes a suspended text of rules; returns the message for the operator."""
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
        reads: bool = False,
        notes: Notes = (),
        time: int | None = None,
    ) -> Epoch:
        """Commits one turn; ``on_durable`` is called with its epoch once that is on disk.

        ``others`` are further owners with their actions, in the same epoch; ``notes`` go to the log with
        it.  ``own`` is a turn of the daemon or of an actor that it hosts: it may have more actions than a
        turn of a client; ``reads`` is one of interests, for which a full memory has a reserve.
        ``time`` is when the turn is, as ``until_now`` said, where something was looked at
        before.  What the turn asserts counts for the ``account``, if there is one.  A turn of a client that a
        later one has overtaken while it waited is refused (``not-applied``): another connection may use the
        same numbers.
        Raises ``Refused`` or ``ProtocolError``, and nothing has happened.  The turn counts once the log has
        taken it: after any other exception before that nothing has happened either.
        """
        if self._departures.noted or self.endings.left:
            self.finish_ending(owner)
        commits, daemon = self.leading.commits, self._daemon
        if commits.full is not None:
            self._check_room(actions, internal=client is None and not publication)
        commits.check_open()
        check_name("an owner", owner, self.limits.name_bytes)
        if client is not None:
            client.begin(sequence, commits, self.space.epoch, self.space.time)
        if not publication:
            self.publishing.claims.forget(owner)
        for other, more in others:
            self.finish_ending(other)
            if commits.full is not None:
                self._check_room(more, internal=False)
            check_name("an owner", other, self.limits.name_bytes)
            self.publishing.claims.forget(other)
        if self.sessions.unnoted:
            self.sessions.note_sessions((owner, actions), *others)
        self.holdings.writer = account
        admit = daemon.admit_reader if reads else daemon.admit if account is None else account.admit
        before = commits.latest
        submit: Callable[[Epoch], None] = partial(commits.submit, on_durable=on_durable, notes=notes)
        if daemon.recorder is not None and client is not None and (trace := TRACED.get()) is not None:
            submit = daemon.recorder.submitting(trace, commits, self.space.interests, on_durable, notes)
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
                admit=admit,
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
                    self.searches.add_claims(commits.latest.claims)
        if account is not None:
            self._count(owner, account)
            for other, _ in others:
                self._count(other, account)
        self._note_due()
        return epoch

    def _count(self, owner: str, account: Account) -> None:
        """Counts what an owner claims for the account of its last turn."""
        self.holdings.set_claimed(owner, account, *self.space.held(owner))
        if owner in self.space.rule_quotas:
            self.holdings.note_rules(owner, account, *self.space.rules_held(owner))

    def reported(self, done: Done, permit: Permit, principal: object) -> Report:
        """Returns what comes of what a turn reports as done; as ``SpacePart.report``."""
        for part in self._each_part if done else ():
            if (report := part.report(done, permit, principal)) is not None:
                return report
        return NOTHING

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

    def session_back(self, owner: str) -> None:
        """Notes that a session of an earlier daemon has all its streams again, or will not have them."""
        for part in self._each_part if self.leads else ():
            part.session_back(owner)

    def session_ended(self, owner: str, *, blame: bool) -> None:
        """Gives back what the streams of a session have; with ``blame`` the session has failed."""
        for part in self._each_part if self.leads else ():
            if part.is_busy:
                part.session_ended(owner, blame=blame)

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
                self.publishing.claims.forget(owner)
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
        self.publishing.claims.forget(owner)
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
            self.leading.commits.fail(f"space {self.name} is damaged: {self.space.damage!r:.200}")

    def check_space(self, name: str) -> None:
        """Raises ``Refused`` for the name of another space than this one."""
        if name == self.name:
            return
        if name == SYSTEM:
            raise Refused("read-only", f"space {SYSTEM!r} can only be observed, and only now")
        if name in self._daemon.names:
            raise Refused(
                "no-space", f"this session is about space {self.name!r}: {name!r} needs another one"
            )
        raise no_space(name, self._daemon.names)

    async def find_turns(self, client: Client, wanted: Collection[int]) -> dict[int, int]:
        """Returns the epochs of old turns, 0 for those not applied; those not known any more are left out.

        Forgotten turns are looked up in the log, in one pass of a thread: O(log) at worst.
        """
        return await find_turns(self.commits, self.log, self.lane.work(client.name), client, wanted)


def no_space(name: str, names: Collection[str]) -> Refused:
    """Returns the refusal of a name that no space has; ``names`` are the existing ones."""
    return Refused("no-space", f"no space named {name!r:.80}, there is {', '.join(map(repr, names))}")
