"""Validators: each says where a history breaks one of the promises of GUARANTEES.md.

They know nothing of how the daemon works: each reckons with plain dicts what must be so, and compares.
Every kind of run is judged by all of them; ``judged`` says which of them a run gave something to judge.

Always: a validator changes nothing, and yields one sentence for each place where the promise is broken.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from copy import deepcopy
from itertools import accumulate
from typing import Final, TypeAlias

from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND
from dataspace.kernel.changes import Epoch
from index.patterns.patterns import matcher
from index.values.values import Map, Record, Value, key
from tests.guarantees.conditions import conditions
from tests.guarantees.history import Graced, History, Row, Shown, Turn, View, take_in
from tests.guarantees.rules import DERIVED, rules, said_in
from tests.model.locks import LockHistory, lock_violations
from tests.model.space import Space
from tests.model.topics import topic_violations

Validator: TypeAlias = Callable[[History], Iterator[str]]


def ownership(history: History) -> Iterator[str]:
    """A fact is there exactly while an owner claims it."""
    held: dict[tuple[str, int], Value] = {}
    claims: Counter[Hashable] = Counter()
    there: set[Hashable] = set()
    for epoch in history.log:
        touched: set[Hashable] = set()
        for owner, asserted, retracted in epoch.claims:
            for handle, fact in asserted:
                if (owner, handle) in held:
                    before = key(held[owner, handle])
                    claims[before] -= 1
                    touched.add(before)
                held[owner, handle] = fact
                claims[key(fact)] += 1
                touched.add(key(fact))
            for handle in retracted:
                if (owner, handle) not in held:
                    yield f"epoch {epoch.number}: {owner} retracts handle {handle}, which it does not hold"
                    continue
                at = key(held.pop((owner, handle)))
                claims[at] -= 1
                touched.add(at)
        came = {at for at in touched if claims[at] and at not in there}
        went = {at for at in touched if not claims[at] and at in there}
        if {key(fact) for fact in epoch.added} != came:
            yield f"epoch {epoch.number} adds {list(epoch.added)}, its claims do not"
        if {key(fact) for fact in epoch.removed} != went:
            yield f"epoch {epoch.number} removes {list(epoch.removed)}, its claims do not"
        there = (there | came) - went


def session_ends(history: History) -> Iterator[str]:
    """All facts of a session that ends go in one epoch."""
    gone: dict[Hashable, int] = {}
    for epoch in history.log:
        gone |= {key(fact): epoch.number for fact in epoch.removed}
    for facts in history.ended:
        epochs = {gone.get(key(fact)) for fact in facts}
        if len(epochs) != 1 or None in epochs:
            yield f"facts of one session go in epochs {sorted(epochs, key=str)}: {sorted(map(str, facts))}"


def whole_turns(history: History) -> Iterator[str]:
    """The actions of a turn happen together in one epoch, or none of them does."""
    logged, said = _by_turn(history.log), said_in(history.log)
    for turn in history.turns:
        entries = logged.get((turn.client, turn.sequence), [])
        if isinstance(turn.answer, str):
            if entries:
                yield f"{_name(turn)} was refused ({turn.answer}), and is in epoch {entries[0].number}"
        elif entries:
            yield from _differences(turn, entries[0], said)


def once(history: History) -> Iterator[str]:
    """A turn is applied at most once, however often it is sent, and answered with the epoch it made."""
    logged = _by_turn(history.log)
    for (client, sequence), entries in logged.items():
        if len(entries) > 1:
            yield f"turn {sequence} of {client} is in epochs {[each.number for each in entries]}"
    for turn in history.turns:
        entries = logged.get((turn.client, turn.sequence), [])
        if isinstance(turn.answer, int) and entries and entries[0].number != turn.answer:
            yield f"{_name(turn)} was answered with epoch {turn.answer}, and is in {entries[0].number}"
    orders: defaultdict[str, list[int]] = defaultdict(list)
    for epoch in history.log:
        if epoch.client is not None:
            orders[epoch.client].append(epoch.sequence)
    for client, order in orders.items():
        if order != sorted(order):
            yield f"turns of {client} are in the order {order}"


def durability(history: History) -> Iterator[str]:
    """What was acknowledged is in the log; no number is used for two epochs."""
    logged = _by_turn(history.log)
    effects = {each.number for each in history.log}
    for turn in history.turns:
        if isinstance(turn.answer, int) and turn.answer > history.base and _has_effect(turn):
            if (turn.client, turn.sequence) not in logged:
                yield f"{_name(turn)} was acknowledged in epoch {turn.answer}, and is in no epoch"
            elif turn.answer not in effects:
                yield f"epoch {turn.answer} was acknowledged, and is not there"
    numbers = Counter(each.number for each in history.log if not each.silent)
    for number, count in numbers.items():
        if count > 1:
            yield f"{count} epochs have the number {number}"
    yield from _leaders(history)
    newest = 0
    for term, first in history.chain:
        if term < newest:
            yield f"epoch {first} was written under term {term}, after one of term {newest}"
        newest = max(newest, term)


def order(history: History) -> Iterator[str]:
    """Epochs ascend, their times never go back, and what one adds it does not remove.

    A turn that was submitted after another one was answered is in a later epoch; or in the same one if it
    changed no fact.
    """
    for turn in history.turns:
        if isinstance(turn.answer, int) and turn.answer < turn.after:
            yield f"{_name(turn)} is in epoch {turn.answer}, submitted when {turn.after} was answered"
    number = time = 0
    for epoch in history.log:
        if epoch.number < number + (not epoch.silent):
            yield f"epoch {epoch.number} follows {number}"
        if epoch.time < time:
            yield f"epoch {epoch.number} is earlier than the one before it"
        number, time = epoch.number, epoch.time
        both = {key(fact) for fact in epoch.added} & {key(fact) for fact in epoch.removed}
        if both:
            yield f"epoch {epoch.number} adds and removes the same fact"


def observation(history: History) -> Iterator[str]:
    """An observer is shown a state and then every epoch, whole and in order, by whatever process.

    No client hears of an earlier epoch than it had heard of when it asked.
    """
    for name, view in history.views.items():
        if not view.epochs:
            yield f"{name} was shown nothing"
            continue
        began = view.epochs[0].number
        expected = _shown(history.log, view, began)
        for told, due in zip(view.epochs, expected, strict=False):
            if _plain(told) != _plain(due):
                yield f"{name} was shown {told}, the log has {due}"
        if len(view.epochs) != len(expected):
            yield f"{name} was shown {len(view.epochs)} epochs of {len(expected)}"
    for client, heard in history.heard.items():
        newest = [0, *accumulate([each.epoch for each in heard], max)]
        for each in heard:
            if each.epoch < newest[each.asked]:
                yield f"{client} had heard of epoch {newest[each.asked]}, and then got {each}"


def leases(history: History) -> Iterator[str]:
    """What a lease owns stays at least for its length after the last renewal was sent."""
    for term in history.terms:
        for epoch in history.log:
            ends = any(f":{term.owner}-" in each.owner and each.retracted for each in epoch.claims)
            if ends and epoch.time < term.until:
                yield f"{term.owner} ended in epoch {epoch.number}, {term.until - epoch.time} µs too early"


def graces(history: History) -> Iterator[str]:
    """A session with grace is resumed in time, after a restart too, by its secret alone; no fact blinks."""
    for client in history.stolen:
        yield f"the session of {client} was resumed without its secret"
    for session in history.graced:
        for away, resumed in session.returns:
            if away < session.grace and not resumed:
                yield f"{session.client} came back after {away:g} s of {session.grace:g}, and had no session"
        if all(resumed for _, resumed in session.returns):
            yield from _blinks(history.log, session)


def spaces(history: History) -> Iterator[str]:
    """A turn is in the log of the space to which it was sent, and in no other."""
    asked = {(turn.client, turn.sequence) for turn in history.turns}
    recorded = {turn.client for turn in history.turns}
    for client, sequence in _by_turn(history.changes):
        is_recorded = client in recorded or (client.startswith("owner:") and not history.strangers)
        if is_recorded and (client, sequence) not in asked:
            yield f"turn {sequence} of {client} is in the log of a space to which it was not sent"


def outcome(history: History) -> Iterator[str]:
    """A durable owner of whom every turn was answered has in the end what those turns leave it."""
    turns: defaultdict[str, list[Turn]] = defaultdict(list)
    for turn in history.turns:
        turns[turn.client].append(turn)
    claims: dict[str, dict[int, Value]] = {}
    base: dict[str, dict[int, Value]] = {}
    for epoch in history.log:
        take_in(claims, epoch)
        if history.base and epoch is history.log[0]:
            base = deepcopy(claims)
    for client, each in turns.items():
        if not client.startswith("owner:") or any(turn.answer is None for turn in each):
            continue
        owner = f"durable:{client.removeprefix('owner:')}"
        accepted = [turn for turn in each if not isinstance(turn.answer, str)]
        accepted.sort(key=lambda turn: turn.sequence)
        left = _left(owner, base.get(owner, {}), accepted)
        holds = claims.get(owner, {})
        if {handle: key(fact) for handle, fact in left.items()} != {
            handle: key(fact) for handle, fact in holds.items()
        }:
            yield f"{owner} holds {holds}, its turns leave {left}"


def topics(history: History) -> Iterator[str]:
    """An epoch of a topic is shown whole or not at all, once, in order; who vanished in it is named."""
    for name, topic in history.topics.items():
        for said in topic_violations(topic):
            yield f"{name}: {said}"


def locks(history: History) -> Iterator[str]:
    """A lock has one holder at a time, its tokens rise, and no holder believes in it for too long."""
    changes = [
        (epoch.number, [*filter(_is_lock, epoch.added)], [*filter(_is_lock, epoch.removed)])
        for epoch in history.log
    ]
    lock = history.lock
    yield from lock_violations(LockHistory(lock.grants, lock.beliefs, lock.writes, changes))


def rights(history: History) -> Iterator[str]:
    """A tenant makes no fact, message or interest that its token does not allow."""
    for epoch in history.changes:
        for value in (*epoch.added, *epoch.messages):
            if not isinstance(value, Record) or not value.fields:
                continue
            by = value.fields[0]
            tenant = by.removeprefix("by-") if isinstance(by, str) and by.startswith("by-") else ""
            if history.rights.get(tenant, value.label) != value.label:
                yield f"epoch {epoch.number}: {tenant} made {value!r:.200}, which its token does not allow"
            if value.label == "Observe" and any(_mentions(value, label) for label in history.secret):
                yield f"epoch {epoch.number} announces {value!r:.200}, an interest in what is secret"


def _leaders(history: History) -> Iterator[str]:
    """Yields turns that a leader has accepted after its term.

    A follower answers turns that are sent again, as far as it has their epochs.
    """
    firsts = sorted(history.firsts.items(), reverse=True)
    for turn in history.turns:
        term = history.leaders.get(turn.at)
        if term is None or not isinstance(turn.answer, int):
            continue
        made = next((at for at, first in firsts if first <= turn.answer), 0)
        if made > term:
            yield f"{_name(turn)} was accepted by {turn.at}, which led term {term}, in an epoch of {made}"


def _blinks(log: Sequence[Epoch], session: Graced) -> Iterator[str]:
    """Yields the facts of a session that came again, and the gaps between two of them."""
    facts = {key(fact): fact for fact in session.facts}
    came: Counter[Hashable] = Counter()
    held: set[Hashable] = set()
    for epoch in log:
        added = {key(fact) for fact in epoch.added} & facts.keys()
        if added and came and not held:
            yield f"{session.client} had no fact before epoch {epoch.number}, between two that it had"
        came.update(added)
        held = (held | added) - {key(fact) for fact in epoch.removed}
    for at, times in came.items():
        if times > 1:
            yield f"{facts[at]!r:.80} of {session.client} has come {times} times"


def _is_lock(fact: Value) -> bool:
    return isinstance(fact, Record) and fact.label == "lock"


def _mentions(value: Value, label: str) -> bool:
    """True if a value has a record with this label, or this text, anywhere within."""
    if isinstance(value, Record):
        return value.label == label or any(_mentions(each, label) for each in (value.label, *value.fields))
    if isinstance(value, tuple):
        return any(_mentions(each, label) for each in value)
    if isinstance(value, Map):
        return any(_mentions(each, label) for pair in value.items() for each in pair)
    return value == label


def _any_turn(history: History) -> bool:
    return any(isinstance(turn.answer, int) and turn.answer > history.base for turn in history.turns)


MATERIAL: Final[dict[Validator, Callable[[History], bool]]] = {
    ownership: lambda history: any(epoch.claims for epoch in history.changes),
    session_ends: lambda history: bool(history.ended),
    whole_turns: _any_turn,
    once: _any_turn,
    durability: _any_turn,
    order: lambda history: len(history.changes) > 1,
    observation: lambda history: any(len(view.epochs) > 1 for view in history.views.values()),
    leases: lambda history: bool(history.terms),
    graces: lambda history: any(session.returns for session in history.graced),
    conditions: lambda history: any(turn.expected for turn in history.turns),
    spaces: _any_turn,
    outcome: lambda history: any(turn.client.startswith("owner:") for turn in history.turns),
    topics: lambda history: any(topic.epochs for topic in history.topics.values()),
    locks: lambda history: bool(history.lock.grants),
    rules: lambda history: any(each.owner == DERIVED for epoch in history.log for each in epoch.claims),
    rights: lambda history: bool(history.rights),
}
"""What each validator needs in a history to have something to judge."""

VALIDATORS: Final[dict[str, Validator]] = {each.__name__: each for each in MATERIAL}


def broken(history: History) -> list[str]:
    """Returns what is broken, each sentence with the name of its validator."""
    return [f"{name}: {said}" for name, validator in VALIDATORS.items() for said in validator(history)]


def judged(history: History) -> set[str]:
    """Returns the names of the validators for which there is something to judge in a history."""
    return {name for name, validator in VALIDATORS.items() if MATERIAL[validator](history)}


def _by_turn(log: Sequence[Epoch]) -> dict[tuple[str, int], list[Epoch]]:
    found: defaultdict[tuple[str, int], list[Epoch]] = defaultdict(list)
    for epoch in log:
        if epoch.client is not None:
            found[epoch.client, epoch.sequence].append(epoch)
    return found


def _name(turn: Turn) -> str:
    return f"turn {turn.sequence} of {turn.client}"


def _has_effect(turn: Turn) -> bool:
    """True unless what the turn asserts it also retracts, so that no epoch need tell of it."""
    claims, messages = _net(turn)
    return bool(claims or messages)


def _net(turn: Turn) -> tuple[dict[int, Hashable], list[Hashable]]:
    """Returns what the turn leaves of each handle (None if it ends), and its messages."""
    claims: dict[int, Hashable] = {}
    messages: list[Hashable] = []
    begun: set[int] = set()
    for verb, *rest in turn.all_actions:
        if verb == SEND:
            messages.append(key(rest[0]))
        elif verb == ASSERT:
            claims[rest[0]] = key(rest[1])
            begun.add(rest[0])
        elif verb == RETRACT:
            _end(claims, begun, rest[0])
        elif verb == REPLACE:
            _end(claims, begun, rest[0])
            claims[rest[1]] = key(rest[2])
            begun.add(rest[1])
    return claims, messages


def _left(owner: str, held: dict[int, Value], turns: Sequence[Turn]) -> dict[int, Value]:
    """Returns what turns of one owner leave of what it held before."""
    space = Space()
    space.claims[owner] = held
    for turn in turns:
        space.claims[owner], _ = space.carried_out(owner, turn.actions)
    return space.claims[owner]


def _end(claims: dict[int, Hashable], begun: Collection[int], handle: int) -> None:
    """Ends what stands under a handle; what the same turn has begun there comes to nothing."""
    if handle in begun:
        claims.pop(handle)
    else:
        claims[handle] = None


def _differences(turn: Turn, epoch: Epoch, said: set[Value]) -> Iterator[str]:
    claims, messages = _net(turn)
    logged: dict[int, Hashable] = {}
    for owner, asserted, retracted in epoch.claims:
        if owner == DERIVED:
            continue
        logged |= {handle: key(fact) for handle, fact in asserted}
        for handle in retracted:
            _end(logged, {handle for handle, _ in asserted}, handle)
    if logged != claims:
        yield f"epoch {epoch.number} has other claims than {_name(turn)}"
    sent = [each for each in epoch.messages if not (isinstance(each, Record) and each.label in said)]
    if [key(each) for each in sent] != messages:
        yield f"epoch {epoch.number} has other messages than {_name(turn)}"


def _shown(log: Sequence[Epoch], view: View, began: int) -> list[Shown]:
    """Returns what an observer whose state is that of epoch ``began`` must have been shown."""
    read = matcher(view.pattern)
    counts: Counter[Hashable] = Counter()
    rows: dict[Hashable, Row] = {}
    found: list[Shown] = []
    for epoch in log:
        if epoch.number > view.upto:
            break
        added, messages, removed = (
            [row for row in map(read, values) if row is not None]
            for values in (epoch.added, epoch.messages, epoch.removed)
        )
        first, last = [], []
        for row in added:
            at = key(row)
            rows[at] = row
            counts[at] += 1
            if counts[at] == 1:
                first.append(row)
        for row in removed:
            counts[key(row)] -= 1
            if not counts[key(row)]:
                last.append(row)
        if epoch.number > began and (first or messages or last):
            found.append(Shown(epoch.number, epoch.number, first, messages, last))
    return [Shown(began, began, _state(log, view, began), [], [], is_state=True), *found]


def _state(log: Sequence[Epoch], view: View, at: int) -> list[Row]:
    read = matcher(view.pattern)
    held: dict[Hashable, Value] = {}
    for epoch in log:
        if epoch.number <= at:
            held |= {key(fact): fact for fact in epoch.added}
            for fact in epoch.removed:
                held.pop(key(fact), None)
    found = {key(row): row for row in map(read, held.values()) if row is not None}
    return list(found.values())


def _plain(shown: Shown) -> tuple[object, ...]:
    added = [key(row) for row in shown.added]
    return (
        shown.number,
        shown.first,
        sorted(added, key=repr) if shown.is_state else added,  # a state is in no order
        [key(row) for row in shown.messages],
        [key(row) for row in shown.removed],
    )
