"""The commands that commit one turn and end: send, assert for a durable owner, retract, put.

Always: a turn that was reported is on the daemon's disk; an error about a handle names its fact.
"""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Sequence
from functools import partial

from dataspace.codec import array_head, pack
from dataspace.errors import ExpectationFailed, Refused, UsageError
from dataspace.facts import key_pattern, literally
from dataspace.foreign import tame
from dataspace.kernel.actions import ASSERT, RETRACT, SEND, WITHDRAW, Action
from dataspace.kernel.expectations import FOUND_ROWS, Expectation
from index.patterns.patterns import lit, matcher
from index.patterns.text import unparse
from index.values.values import Map, Record, Value, key, same
from server.cli.connecting import CommandSpace, connect_short, held_here
from server.cli.output import counted, epochs_text, say, say_accepted
from server.cli.values import check_single, expectations, given, has_pattern, parsed, read, tell


def send(args: argparse.Namespace) -> int:
    """Sends messages, all in one turn."""
    messages, expected = given(args.message), expectations(args)
    with connect_short(args) as space:
        try:
            epoch = space.commit([(SEND, message) for message in messages], expected=expected)
        except ExpectationFailed as failed:
            return tell(failed, expected)
    say(f"sent {counted(len(messages), 'message')} in epoch {epoch}")
    return 0


def assert_(args: argparse.Namespace) -> int:
    """Asserts facts for a durable owner."""
    facts = list({key(fact): fact for fact in given(args.fact)}.values())
    expected = expectations(args, map(literally, facts))
    with connect_short(args) as space:
        try:
            epochs, count = _publish(space, "assert", facts, args.durable, expected)
        except ExpectationFailed as failed:
            return tell(failed, expected)
    if count == 0:
        raise Refused("handle-in-use", f"{tame(args.durable)} has already asserted {_named(facts, 'all')}")
    before = f"; {counted(len(facts) - count, 'other')} asserted before" if count < len(facts) else ""
    say(f"asserted {counted(count, 'fact')} in {epochs_text(epochs)}{before}")
    return 0


def retract(args: argparse.Namespace) -> int:
    """Retracts facts of a durable owner or of a lease, and its facts that patterns match.

    Without either, in a shell, the facts are the shell's.
    """
    if not (args.durable or args.lease):
        return _retract_own(args)
    owner = args.durable or _lease(args.lease)
    facts: list[Value] = []
    patterns: list[Value] = []
    for text, value in read(args.fact):
        if text and has_pattern(value):
            patterns.append(parsed(text))
        elif args.lease:  # whose handles are those of another client
            patterns.append(lit(value))
        else:
            facts.append(value)
    epochs: list[int] = []
    count = 0
    expected = expectations(args, [*map(literally, facts), *patterns])
    if expected:
        return _retract_if(args, owner, facts, patterns, expected)
    with connect_short(args) as space:
        if facts:
            epochs, count = _publish(space, "retract", facts, owner)
            if count == 0:
                more = _longer(space, facts[0], owner) if len(facts) == 1 else ""
                what = f"{tame(owner)} does not assert {_named(facts, 'any')}{more}"
                raise Refused("unknown-handle", what)
        for pattern in patterns:
            answer = space.request("withdraw", {"owner": owner, "pattern": pattern})
            assert isinstance(answer, Map) and isinstance(answer["retracted"], int)  # by WIRE.md
            assert isinstance(answer["epochs"], tuple)  # as above
            count += answer["retracted"]
            epochs += [each for each in answer["epochs"] if isinstance(each, int)]
    where = f" in {epochs_text(epochs)}" if epochs else f": {tame(owner)} asserts nothing that matches"
    say(f"retracted {counted(count, 'fact')}{where}")
    return 0


def _retract_if(
    args: argparse.Namespace,
    owner: str,
    facts: Sequence[Value],
    patterns: Sequence[Value],
    expected: Sequence[Expectation],
) -> int:
    """Retracts facts, and facts that patterns match, in one turn that expects something."""
    actions: list[Action] = [(WITHDRAW, pattern) for pattern in [*map(lit, facts), *patterns]]
    with connect_short(args) as space:
        try:
            parts = space.cut(actions, owner)
            check_single(expected, len(parts))
            epochs = [space.commit(part, owner, expected=expected) for part in parts]
        except ExpectationFailed as failed:
            return tell(failed, expected)
    say(f"retracted what {tame(owner)} asserts of it in {epochs_text(epochs)}")
    return 0


def _retract_own(args: argparse.Namespace) -> int:
    """Retracts facts of the shell that are written as they are, or that patterns match."""
    held = held_here(args)
    going: dict[int, Value] = {}
    for text, value in read(args.fact):
        is_meant = matcher(parsed(text)) if has_pattern(value) else partial(_is_same, value)
        found = {handle: fact for handle, fact in held.items() if is_meant(fact) is not None}
        if not found.keys() - going.keys():
            raise UsageError(
                f"this shell asserts nothing that {text} matches; of a durable owner? name it with --owner"
            )
        going |= found
    expected = expectations(args, map(literally, going.values()))
    with connect_short(args) as space:
        try:
            epoch = space.commit([(RETRACT, handle) for handle in going], expected=expected)
        except ExpectationFailed as failed:
            return tell(failed, expected)
    say(f"retracted {counted(len(going), 'fact')} in epoch {epoch}")
    return 0


def _is_same(wanted: Value, fact: Value) -> tuple[Value, ...] | None:
    """Returns an empty capture if two facts are the same; None if they are not, as a matcher does."""
    return () if same(wanted, fact) else None


def _lease(name: str) -> str:
    """Returns the owner that a lease is; raises ``UsageError`` for a text that names no lease."""
    if not name.startswith("lease:"):
        raise UsageError(
            f"{name!r:.80} is no lease: give it as `dataspace owners` shows it, lease:60000:NAME"
        )
    return name


def put(args: argparse.Namespace) -> int:
    """Asserts a fact in place of what its durable owner asserts with the same key."""
    (fact,) = given([args.fact])
    key = key_pattern(fact, args.key)
    expected = expectations(args, [key])
    arguments: dict[str, Value] = {
        "keys": (pack((("assert", fact),)),),
        "owner": args.durable,
        "client": f"~put-{uuid.uuid4().hex}",
        "sequence": 1,
        "by": key,
        "expect": tuple([each.packed() for each in expected]),
    }
    with connect_short(args) as space:
        try:
            epoch = space.request("publish", arguments)
        except ExpectationFailed as failed:
            now = () if failed.rows else space.state(Record("$", None, None, key)).added
            return tell(failed, expected, [each for (each,) in now][:FOUND_ROWS])
    assert isinstance(epoch, int)  # by WIRE.md
    say(f"put {unparse(fact):.200} in epoch {epoch}")
    return 0


def _publish(
    space: CommandSpace,
    verb: str,
    facts: Sequence[Value],
    owner: str,
    expected: Sequence[Expectation] = (),
) -> tuple[list[int], int]:
    """Asserts or retracts facts of an owner by value, in one turn, or in several if one cannot hold all.

    Returns the epochs of the turns that changed something, and how many facts it were.
    """
    epochs: list[int] = []
    count = 0
    parts = space.cut([(ASSERT, at, fact) for at, fact in enumerate(facts)], owner)
    check_single(expected, len(parts))
    client = f"~{verb}-{uuid.uuid4().hex}"
    for sequence, part in enumerate(parts, 1):
        arguments: dict[str, Value] = {
            "keys": (array_head(len(part)) + b"".join([pack((verb, each[2])) for each in part]),),
            "owner": owner,
            "client": client,
            "sequence": sequence,
            "once": True,
            "expect": tuple([each.packed() for each in expected]),
        }
        try:
            answer = space.request("publish", arguments)
        except Refused:
            if epochs:
                say_accepted(epochs)
            raise
        assert isinstance(answer, Map)  # by WIRE.md
        epoch, changed = answer["epoch"], answer[f"{verb}ed"]
        assert isinstance(epoch, int) and isinstance(changed, int)  # as above, since the number is a new one
        count += changed
        epochs += [epoch] * (changed > 0)
    return epochs, count


def _named(facts: Sequence[Value], which: str) -> str:
    """Returns the words for facts in an error."""
    return unparse(facts[0]) if len(facts) == 1 else f"{which} of these {len(facts)} facts"


def _longer(space: CommandSpace, fact: Value, owner: str) -> str:
    """Returns which pattern would match, if there are facts that begin like a fact and have more fields."""
    if not isinstance(fact, Record):
        return ""
    pattern = Record.of(fact.label, (*fact.fields, Record("_")))
    try:
        count = len(space.state(Record("$", None, None, pattern)).added)
    except Refused:  # a token that may not observe them
        return ""
    name = unparse(pattern)
    return f"; {name} matches {counted(count, 'fact')}: name it to retract those of {owner}" if count else ""
