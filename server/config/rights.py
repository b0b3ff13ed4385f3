"""Rights: what the bearer of a token may do, and the keys that tell which token it is.

A table of the configuration, or a caveat of a narrowed token, lists rights.  A table that lists no right
allows everything; a table that lists some allows exactly those rights.  The rights under ``deny`` are taken
away from that.  ``spaces`` and ``until`` are conditions beside them, and ``stamp`` is what the bearer's
claims carry.  A bearer may do what *each* table allows, so that a caveat can only restrict.

Always: a pattern is refused unless it is certain that it asks for no more than is allowed, and for nothing
that is denied; no text of a refusal holds a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from dataspace.codec import unpack
from dataspace.errors import ProtocolError, Refused, UsageError
from dataspace.kernel.actions import ASSERT, PUT, REPLACE, SEND, WITHDRAW, Action
from dataspace.transport.tokens import Token, name_of
from index.patterns.patterns import Pattern, matcher, skeleton
from index.patterns.text import parse_pattern, unparse
from index.values.values import Map, Record, Value
from server.config.covering import apart, covers
from server.config.principals import NAME, UNNAMED, Principal, checked_name

PATTERNS: Final = ("assert", "send", "observe")
NAMES: Final = ("durable", "readers", "groups")
TOPICS: Final = ("publish", "subscribe", "retain", "end")
"""The actions on a topic: to send to it, to read it, to have it keep items, to end it."""

FLAGS: Final = ("rules", "inspect", "administer")
RIGHTS: Final = (*PATTERNS, "durable", "topics", "readers", "groups", *FLAGS)
CONDITIONS: Final = ("spaces", "until")
KNOWN: Final = (*RIGHTS, *CONDITIONS, "deny", "stamp")
RULE: Final = "rule"
MAX_STAMPS: Final = 8
"""Entries of the stamp of one table."""

Scope = tuple[str, ...] | bool
"""True for everything, False for nothing, or a list of the allowed patterns or names."""


@dataclass(frozen=True, slots=True)
class TopicRights:
    """The topics with which each thing may be done."""

    publish: Scope = True
    subscribe: Scope = True
    retain: Scope = True
    end: Scope = True

    def stated(self) -> Value:
        """Returns the entry of a table for these rights."""
        scopes: dict[str, Value] = {name: getattr(self, name) for name in TOPICS}
        alike = isinstance(self.publish, bool) and all(scope is self.publish for scope in scopes.values())
        return self.publish if alike else Map(scopes)


NO_TOPICS: Final = TopicRights(False, False, False, False)


@dataclass(frozen=True, slots=True)
class Rights:
    """One table of rights; each ``Scope`` is of patterns as text, or of names.

    ``deny`` has the same for the denied rights; ``stamp`` is pairs of words.
    """

    assert_: Scope = True
    send: Scope = True
    observe: Scope = True
    durable: Scope = True
    topics: TopicRights = field(default_factory=TopicRights)
    readers: Scope = True
    groups: Scope = True
    rules: bool = True
    inspect: bool = True
    administer: bool = True
    spaces: Scope = True
    until: datetime | None = None
    deny: Rights | None = None
    stamp: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, stated: Map) -> Rights:
        """Returns the rights in a table; ``UsageError`` has the error in it."""
        _check_known(stated, KNOWN)
        rest = not any(name in stated for name in RIGHTS)
        until = stated.get("until")
        if until is not None and not isinstance(until, datetime):
            raise UsageError(f"until must be a time with a time zone, got {until!r:.60}")
        return replace(
            cls._listed(stated, rest, all_of_topics=False),
            spaces=_scope(stated, "spaces", True),
            until=until,
            deny=_denied(stated),
            stamp=_stamp(stated),
        )

    @classmethod
    def _listed(cls, stated: Map, rest: bool, *, all_of_topics: bool) -> Rights:
        read: dict[str, Scope] = {name: _scope(stated, name, rest) for name in (*PATTERNS, *NAMES)}
        for name in PATTERNS:
            _check_patterns(name, read[name])
        return cls(
            assert_=read["assert"],
            send=read["send"],
            observe=read["observe"],
            durable=read["durable"],
            topics=_topics(stated, rest, all_of_topics),
            readers=read["readers"],
            groups=read["groups"],
            rules=_flag(stated, "rules", rest),
            inspect=_flag(stated, "inspect", rest),
            administer=_flag(stated, "administer", rest),
        )

    def stated(self) -> Map:
        """Returns the table for these rights."""
        listed: dict[str, Value] = {} if self.spaces is True else {"spaces": self.spaces}
        if self.until is not None:
            listed["until"] = self.until
        if self.deny is not None:
            listed["deny"] = Map(self.deny._listing())
        if self.stamp:
            listed["stamp"] = Map(dict(self.stamp))
        if replace(self, spaces=True, until=None, deny=None, stamp=()) == Rights():
            return Map(listed)
        return Map({**self._listing(), **listed})

    def _listing(self) -> dict[str, Value]:
        names = (*PATTERNS[1:], *NAMES, *FLAGS)
        listed: dict[str, Value] = {"assert": self.assert_, "topics": self.topics.stated()}
        return listed | {name: getattr(self, name) for name in names}

    @property
    def denied(self) -> Rights:
        """The denied rights; empty if nothing was stated."""
        return NOTHING if self.deny is None else self.deny


EVERYTHING: Final = Rights()
NOTHING: Final = Rights(False, False, False, False, NO_TOPICS, False, False, False, False, False)


class Permit:
    """The rights of one connection: of its token and of each of its caveats.

    ``key`` is the entry of the configuration for the secret that the token comes from; ``principal`` is the
    bearer, None for a peer without a token; ``stamp`` is what every claim of the bearer carries.  Raises
    ``UsageError`` for tables with different stamps of one name.
    """

    def __init__(
        self,
        name: str,
        tables: Sequence[Rights] = (),
        *,
        key: object = None,
        principal: Principal | None = None,
    ) -> None:
        self.name = name
        self.key = key
        self.principal = principal
        self._tables = [table for table in tables if table != EVERYTHING]
        self._asserts = [_allowing(table.assert_, table.denied.assert_) for table in self._tables]
        self._sends = [_allowing(table.send, table.denied.send) for table in self._tables]
        self._observes = [(_parsed(table.observe), _parsed(table.denied.observe)) for table in self._tables]
        self.until = min((table.until for table in tables if table.until is not None), default=None)
        self.stamp: Mapping[str, str] = MappingProxyType(_together(self._tables))
        self.open: Final = not self._tables
        """True if everything is allowed, and no check is needed; every turn asks."""

    def check_actions(self, actions: Iterable[Action]) -> None:
        """Raises ``Refused`` for a turn that asserts or sends what it may not, or that withdraws by a pattern
        which may not be observed; O(actions × patterns of the token)."""
        for action in actions:
            verb = action[0] if action else None
            if verb in (ASSERT, REPLACE):
                self.check_value("assert", action[-1])
            elif verb == SEND:
                self.check_value("send", action[-1])
            elif verb == PUT:
                self.check_value("assert", action[2])
            elif verb == WITHDRAW:
                self.check_observe(action[1])

    def check_value(self, verb: str, value: Value) -> None:
        """Raises ``Refused`` for a fact or a message that may not be asserted or sent."""
        if verb == "retract":
            return
        rule = verb == "assert" and value.__class__ is Record and value.label == RULE
        if rule:
            self.check_rules()
        for allowed, denied in self._asserts if verb == "assert" else self._sends:
            if not (rule or allowed is None or any(match(value) is not None for match in allowed)):
                raise self._refusal(f"{verb} {unparse(value):.200}")
            if denied and any(match(value) is not None for match in denied):
                raise self._refusal(f"{verb} {unparse(value):.200}, which is denied")

    def check_observe(self, pattern: Pattern) -> None:
        """Raises ``Refused`` for a pattern that asks for more than may be observed, ``UsageError`` for an
        invalid one."""
        if self._tables:
            skeleton(pattern)
        for allowed, denied in self._observes:
            if not _any(allowed, lambda allowed_pattern: covers(allowed_pattern, pattern)):
                raise self._refusal(f"observe {unparse(pattern):.200}")
            if _any(denied, lambda denied_pattern: not apart(denied_pattern, pattern)):
                raise self._refusal(f"observe {unparse(pattern):.200}, which might show what is denied")

    def allows_observe(self, pattern: Pattern) -> bool:
        """True if a pattern may be observed; raises ``UsageError`` for an invalid one."""
        try:
            self.check_observe(pattern)
        except Refused:
            return False
        return True

    def check_reads(self) -> None:
        """Raises ``Refused`` if nothing may be observed."""
        self._check(lambda table: bool(table.observe), lambda no: no.observe is True, "read the log")

    def check_writes(self) -> None:
        """Raises ``Refused`` if nothing may be asserted."""
        self._check(lambda table: bool(table.assert_), lambda no: no.assert_ is True, "hold facts")

    def check_durable(self, owner: str) -> None:
        """Raises ``Refused`` for an owner, or an identity, that outlasts its connection, unless it is
        allowed."""
        if not self.allows_durable(owner):
            raise self._refusal(f"speak for the durable owner {owner!r:.80}")

    def allows_durable(self, owner: str) -> bool:
        """True if an owner, or an identity, that outlasts its connection is allowed."""
        return self._allows_name(lambda table: table.durable, owner)

    def check_topic(self, doing: str, name: str) -> None:
        """Raises ``Refused`` unless one of ``TOPICS`` may be done with a topic."""
        if not self.allows_topic(doing, name):
            raise self._refusal(f"{doing} topic {name!r:.80}")

    def allows_topic(self, doing: str, name: str) -> bool:
        """True if one of ``TOPICS`` may be done with a topic."""
        return self._allows_name(lambda table: getattr(table.topics, doing), name)

    def check_topic_known(self, name: str) -> None:
        """Raises ``Refused`` for a topic that the bearer may not learn about."""
        if not any(self._allows_name(lambda table: getattr(table.topics, each), name) for each in TOPICS):  # noqa: B023
            raise self._refusal(f"use topic {name!r:.80}")

    def check_reader(self, name: str) -> None:
        """Raises ``Refused`` for a named reader that is not allowed; the log keeps what such a reader has not
        read."""
        if not self._allows_name(lambda table: table.readers, name):
            raise self._refusal(f"speak for reader {name!r:.80}")

    def check_group(self, name: str) -> None:
        """Raises ``Refused`` for a group that the bearer may not consume from, or change."""
        if not self._allows_name(lambda table: table.groups, name):
            raise self._refusal(f"consume from group {name!r:.80}")

    def check_space(self, name: str) -> None:
        """Raises ``Refused`` for a dataspace that is not allowed."""
        if not all(_within(table.spaces, name.__eq__) for table in self._tables):
            raise self._refusal(f"use space {name!r:.80}")

    def check_rules(self) -> None:
        """Refuses to add rules, or to have them carried out again."""
        self._check(lambda table: table.rules, lambda no: no.rules, "add rules")

    def check_administer(self, what: str) -> None:
        """Raises ``Refused`` if the daemon may not be administered."""
        self._check(lambda table: table.administer, lambda no: no.administer, what)

    def check_inspect(self, what: str) -> None:
        """Raises ``Refused`` if the daemon may not be inspected."""
        if not self.inspects:
            raise self._refusal(f"ask for {what}")

    @property
    def inspects(self) -> bool:
        """True if the daemon may be inspected."""
        return all(table.inspect and not table.denied.inspect for table in self._tables)

    @property
    def whole(self) -> Map:
        """Which rights are unrestricted, True or False for each; ``spaces``: True, or the names that may be
        used; ``everything``: True if no check is needed at all."""
        unrestricted: dict[str, Value] = {
            name: all(_is_whole(each, name) for each in self._tables) for name in RIGHTS
        }
        among = [set(each or ()) for each in [table.spaces for table in self._tables] if each is not True]
        spaces: Value = tuple(sorted(set.intersection(*among))) if among else True
        return Map({**unrestricted, "spaces": spaces, "everything": self.open})

    def _allows_name(self, scope: Callable[[Rights], Scope], name: str) -> bool:
        return all(
            _within(scope(table), name.__eq__) and not _within(scope(table.denied), name.__eq__)
            for table in self._tables
        )

    def _check(self, allowed: Callable[[Rights], bool], denied: Callable[[Rights], bool], what: str) -> None:
        if not all(allowed(table) and not denied(table.denied) for table in self._tables):
            raise self._refusal(what)

    def _refusal(self, what: str) -> Refused:
        return Refused("not-allowed", f"the token {self._token} does not allow to {what}")

    @property
    def _token(self) -> str:
        """Returns the name of the token in a refusal: a narrowed token differs from its origin."""
        caveats = self.principal.parts[1:] if self.principal is not None else ()
        if not caveats:
            return repr(self.name)
        named = [part for part in caveats if not part.startswith(UNNAMED)]
        return f"{named[-1]!r} narrowed from {self.name!r}" if named else f"narrowed from {self.name!r}"


# -- reading -----------------------------------------------------------------------------------------


def _scope(stated: Map, name: str, default: bool) -> Scope:
    value = stated.get(name, default)
    if value is True or value is False:
        return value
    if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
        return value  # type: ignore[return-value]  # as just checked
    what = "patterns as text" if name in PATTERNS else "names"
    raise UsageError(f"{name} must be true, false or an array of {what}, got {value!r:.60}")


def _flag(stated: Map, name: str, default: bool) -> bool:
    value = stated.get(name, default)
    if value is True or value is False:
        return value
    raise UsageError(f"{name} must be true or false, got {value!r:.60}")


def _check_patterns(name: str, scope: Scope) -> None:
    if isinstance(scope, bool):
        return
    for text in scope:
        try:
            captures = skeleton(parse_pattern(text)).names
        except UsageError as error:
            raise UsageError(f"{name}: {text!r:.80} is no pattern: {error}") from None
        if captures:
            raise UsageError(f"{name}: {text!r:.80} captures, write _ for what may be anything")


def _check_known(stated: Map, known: tuple[str, ...]) -> None:
    for name in stated:
        if name not in known:
            raise UsageError(f"no right {name!r:.60}, known are {', '.join(known)}")


def _denied(stated: Map) -> Rights | None:
    """Returns what a table denies; a list of topics denies everything about them."""
    value = stated.get("deny")
    if value is None:
        return None
    if not isinstance(value, Map):
        raise UsageError(f"deny must be a table of rights, got {value!r:.60}")
    _check_known(value, RIGHTS)
    return Rights._listed(value, False, all_of_topics=True)


def _topics(stated: Map, rest: bool, all_of: bool) -> TopicRights:
    """Returns the entry ``topics``; a list of names is without ``end``, unless ``all_of`` it is meant."""
    value = stated.get("topics", rest)
    if isinstance(value, Map):
        for name in value:
            if name not in TOPICS:
                raise UsageError(f"topics has no {name!r:.60}, known are {', '.join(TOPICS)}")
        return TopicRights(*[_scope(value, name, False) for name in TOPICS])
    scope = _scope(stated, "topics", rest)
    return TopicRights(scope, scope, scope, scope if all_of or isinstance(scope, bool) else False)


def _stamp(stated: Map) -> tuple[tuple[str, str], ...]:
    value = stated.get("stamp", Map())
    if not isinstance(value, Map) or len(value) > MAX_STAMPS:
        raise UsageError(f"stamp must be a table of up to {MAX_STAMPS} words, got {value!r:.60}")
    return tuple([(checked_name(name), checked_name(word)) for name, word in value.pairs()])


def _together(tables: Iterable[Rights]) -> dict[str, str]:
    """Returns the stamps of all tables; no table can replace a stamp of a table before it."""
    stamps: dict[str, str] = {}
    for name, word in [pair for table in tables for pair in table.stamp]:
        if stamps.setdefault(name, word) != word:
            raise UsageError(f"a caveat stamps {name}={word}, which is stamped {name}={stamps[name]} already")
    return stamps


def _is_whole(table: Rights, name: str) -> bool:
    """Returns whether a table allows all of a right, and denies nothing of it."""
    allowed, denied = table._listing()[name], table.denied._listing()[name]
    return allowed is True and not denied


Matchers = list[Callable[[Value], object]]


def _allowing(allowed: Scope, denied: Scope) -> tuple[Matchers | None, Matchers]:
    """Returns functions that match allowed patterns or names, None for everything, and functions for the
    denied ones."""
    if denied is True:
        return [], [matcher(Record("_"))]
    return _matchers(allowed), _matchers(denied) or []


def _matchers(scope: Scope) -> list[Callable[[Value], object]] | None:
    """Returns a function for each allowed pattern, which matches values; None where everything is allowed."""
    if scope is True:
        return None
    return [] if scope is False else [matcher(parse_pattern(text)) for text in scope]


def _parsed(scope: Scope) -> tuple[Pattern, ...] | bool:
    return scope if isinstance(scope, bool) else tuple(map(parse_pattern, scope))


def _any(patterns: tuple[Pattern, ...] | bool, holds: Callable[[Pattern], bool]) -> bool:
    return patterns if isinstance(patterns, bool) else any(map(holds, patterns))


def _within(scope: Scope, allows: Callable[[str], bool]) -> bool:
    return scope if isinstance(scope, bool) else any(map(allows, scope))


OPEN: Final = Permit("")


def permit_of_follower(name: str) -> Permit:
    """Returns the permit of a daemon that follows this one, which reports and does nothing else."""
    return Permit("follower", [NOTHING], principal=Principal.of_member(name))


# -- Keys ------------------------------------------------------------------------------------------
# Always: without any key the daemon admits every peer; the error about a token is one sentence that
# reveals nothing of the keys; a check costs a hash for the token and for each of its caveats.


LEAST: Final = 16
"""Least number of characters of a secret."""


@dataclass(frozen=True, slots=True)
class Key:
    """A secret of the configuration: the name of its bearer, and its rights."""

    name: str
    secret: str = field(repr=False)
    rights: Rights = EVERYTHING
    quota: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    """Quotas of its own, by name; they may change without ending its sessions."""

    def __post_init__(self) -> None:
        if len(self.secret) < LEAST:
            raise UsageError(
                f"the secret of token {self.name!r} has {len(self.secret)} characters, at least {LEAST} are"
                " needed: dataspace token new makes one"
            )


class Keys:
    """All keys of a daemon."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._by_name = {name_of(key.secret): key for key in keys}

    def __len__(self) -> int:
        return len(self._by_name)

    def stands(self, permit: Permit) -> bool:
        """True if these keys would give the bearer of the same token the rights of an earlier permit."""
        return permit.key in self._by_name.values() if self._by_name else permit.key is None

    def returning(self, principal: Principal) -> Permit | None:
        """Returns what stands for the permit of a principal that an earlier daemon admitted, until its bearer
        shows a token again; None if no token of these keys could be its."""
        if not self._by_name:
            return None if principal.kind == "token" else OPEN
        for key in self._by_name.values():
            if principal.covered_by(key.name):
                return Permit(key.name, [key.rights], key=key, principal=principal)
        return None

    def admit(self, token: str) -> Permit:
        """Returns what the bearer of a token may do; raises ``ProtocolError("unauthorized")`` for an invalid
        one."""
        if not self._by_name:
            return OPEN
        if not token:
            raise _unauthorized(
                "this daemon requires a token: give --token-file, $DATASPACE_TOKEN or connect(token=…)"
            )
        try:
            shown = Token.read(token)
            key = self._by_name.get(shown.secret_name)
            if key is None or not shown.is_sealed_by(key.secret):
                raise _unauthorized("the token is unknown to this daemon")
            caveats = [(packed, _caveat(packed)) for packed in shown.caveats]
            principal = Principal.of_token(key.name, caveats)
            tables = [key.rights, *(Rights.read(_unnamed(caveat)) for _, caveat in caveats)]
            permit = Permit(key.name, tables, key=key, principal=principal)
        except UsageError as error:
            raise _unauthorized(str(error)) from None
        if permit.until is not None and permit.until <= datetime.now(UTC):
            raise _unauthorized(f"the token expired at {permit.until:%Y-%m-%dT%H:%M:%SZ}")
        return permit


def _caveat(packed: bytes) -> Map:
    try:
        caveat = unpack(packed)
    except ProtocolError:
        caveat = None
    if not isinstance(caveat, Map):
        raise UsageError("a caveat of the token is not valid")
    return caveat


def _unnamed(caveat: Map) -> Map:
    """Returns the rights in a caveat."""
    return Map({name: value for name, value in caveat.pairs() if name != NAME})


def _unauthorized(text: str) -> ProtocolError:
    return ProtocolError("unauthorized", text)
