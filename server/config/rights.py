"""Rights: what the bearer of a token may do.

A table of the configuration, or a caveat of a narrowed token, lists rights.  One that lists none of them
allows everything; one that lists some allows exactly those.  ``spaces`` and ``until`` are conditions beside
them.  A bearer may do what *each* table allows, so that a caveat can only restrict.

Always: a pattern is refused unless it is certain that it asks for no more than is allowed; no text of a
refusal holds a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from dataspace.errors import Refused, UsageError
from dataspace.kernel.actions import ASSERT, REPLACE, SEND, Action
from index.patterns.patterns import ATOM_CLASSES, Pattern, lit, matcher, skeleton
from index.patterns.text import parse_pattern, unparse
from index.values.values import Map, Record, Value, same
from server.config.principals import UNNAMED, Principal

PATTERNS: Final = ("assert", "send", "observe")
NAMES: Final = ("durable", "topics", "readers")
FLAGS: Final = ("rules", "inspect")
CONDITIONS: Final = ("spaces", "until")
KNOWN: Final = (*PATTERNS, *NAMES, *FLAGS, *CONDITIONS)
RULE: Final = "rule"

Scope = tuple[str, ...] | bool
"""True for everything, False for nothing, or a list of what is allowed."""


@dataclass(frozen=True, slots=True)
class Rights:
    """One table of rights; each ``Scope`` is of patterns as text, or of names."""

    assert_: Scope = True
    send: Scope = True
    observe: Scope = True
    durable: Scope = True
    topics: Scope = True
    readers: Scope = True
    rules: bool = True
    inspect: bool = True
    spaces: Scope = True
    until: datetime | None = None

    @classmethod
    def read(cls, stated: Map) -> Rights:
        """Returns the rights in a table; ``UsageError`` has the error in it."""
        for name in stated:
            if name not in KNOWN:
                raise UsageError(f"no right {name!r:.60}, known are {', '.join(KNOWN)}")
        rest = not any(name in stated for name in (*PATTERNS, *NAMES, *FLAGS))
        read: dict[str, Scope] = {name: _scope(stated, name, rest) for name in (*PATTERNS, *NAMES)}
        for name in PATTERNS:
            _check_patterns(name, read[name])
        until = stated.get("until")
        if until is not None and not isinstance(until, datetime):
            raise UsageError(f"until must be a time with a time zone, got {until!r:.60}")
        return cls(
            assert_=read["assert"],
            send=read["send"],
            observe=read["observe"],
            durable=read["durable"],
            topics=read["topics"],
            readers=read["readers"],
            rules=_flag(stated, "rules", rest),
            inspect=_flag(stated, "inspect", rest),
            spaces=_scope(stated, "spaces", True),
            until=until,
        )

    def stated(self) -> Map:
        """Returns the table for these rights."""
        listed: dict[str, Value] = {} if self.spaces is True else {"spaces": self.spaces}
        if self.until is not None:
            listed["until"] = self.until
        if replace(self, spaces=True, until=None) == Rights():
            return Map(listed)
        others = (*PATTERNS[1:], *NAMES, *FLAGS)
        return Map({"assert": self.assert_, **{name: getattr(self, name) for name in others}, **listed})


EVERYTHING: Final = Rights()


class Permit:
    """What one connection may do: the rights of its token and of each of its caveats.

    ``key`` is the entry of the configuration for the secret that the token comes from; ``principal`` is the
    bearer, None for a peer without a token.
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
        self._asserts = [_matchers(table.assert_) for table in self._tables]
        self._sends = [_matchers(table.send) for table in self._tables]
        self.until = min((table.until for table in tables if table.until is not None), default=None)

    @property
    def open(self) -> bool:
        """True if everything is allowed, and no check is needed."""
        return not self._tables

    def check_actions(self, actions: Iterable[Action]) -> None:
        """Raises ``Refused`` for a turn that asserts or sends what it may not; O(actions × patterns of the
        token)."""
        for action in actions:
            verb = action[0] if action else None
            if verb in (ASSERT, REPLACE):
                self.check_value("assert", action[-1])
            elif verb == SEND:
                self.check_value("send", action[-1])

    def check_value(self, verb: str, value: Value) -> None:
        """Raises ``Refused`` for a fact or a message that may not be asserted or sent."""
        if verb == "assert" and value.__class__ is Record and value.label == RULE:
            self.check_rules()
            return
        if verb == "retract":
            return
        tables = self._asserts if verb == "assert" else self._sends
        for matches in tables:
            if matches is not None and not any(match(value) is not None for match in matches):
                raise self._refusal(f"{verb} {unparse(value):.200}")

    def check_observe(self, pattern: Pattern) -> None:
        """Raises ``Refused`` for a pattern that asks for more than may be observed, ``UsageError`` for an
        invalid one."""
        if self._tables:
            skeleton(pattern)
        for table in self._tables:
            allowed = table.observe
            if not _within(allowed, lambda text: covers(parse_pattern(text), pattern)):
                raise self._refusal(f"observe {unparse(pattern):.200}")

    def check_reads(self) -> None:
        """Raises ``Refused`` if nothing may be observed."""
        self._check(all(table.observe for table in self._tables), "read the log")

    def check_writes(self) -> None:
        """Raises ``Refused`` if nothing may be asserted."""
        self._check(all(table.assert_ for table in self._tables), "hold facts")

    def check_durable(self, owner: str) -> None:
        """Raises ``Refused`` for an owner, or an identity, that outlasts its connection, unless it is
        allowed."""
        self._check_name("durable", owner, f"speak for the durable owner {owner!r:.80}")

    def check_topic(self, name: str) -> None:
        """Raises ``Refused`` for a topic that is not allowed."""
        self._check_name("topics", name, f"use topic {name!r:.80}")

    def check_reader(self, name: str) -> None:
        """Raises ``Refused`` for a named reader that is not allowed; the log keeps what such a reader has not
        read."""
        self._check_name("readers", name, f"speak for reader {name!r:.80}")

    def check_space(self, name: str) -> None:
        """Raises ``Refused`` for a dataspace that is not allowed."""
        self._check_name("spaces", name, f"use space {name!r:.80}")

    def check_rules(self) -> None:
        """Refuses to add rules, or to have them carried out again."""
        self._check(all(table.rules for table in self._tables), "add rules")

    def check_inspect(self, what: str) -> None:
        """Raises ``Refused`` if the daemon may not be inspected."""
        self._check(all(table.inspect for table in self._tables), f"ask for {what}")

    def _check_name(self, right: str, name: str, what: str) -> None:
        self._check(all(_within(getattr(table, right), name.__eq__) for table in self._tables), what)

    def _check(self, allowed: bool, what: str) -> None:
        if not allowed:
            raise self._refusal(what)

    def _refusal(self, what: str) -> Refused:
        return Refused("not-allowed", f"the token {self._token} does not allow to {what}")

    @property
    def _token(self) -> str:
        """Returns how a refusal names the token: a narrowed one is not the one that it comes from."""
        caveats = self.principal.parts[1:] if self.principal is not None else ()
        if not caveats:
            return repr(self.name)
        named = [part for part in caveats if not part.startswith(UNNAMED)]
        return f"{named[-1]!r} narrowed from {self.name!r}" if named else f"narrowed from {self.name!r}"


OPEN: Final = Permit("")


def covers(allowed: Pattern, asked: Pattern) -> bool:
    """True if ``allowed`` certainly matches all that ``asked`` matches; False where that is not certain.

    >>> covers(parse_pattern("reading(_)"), parse_pattern('reading("d1", $value:float)'))
    True
    >>> covers(parse_pattern('reading("d1")'), parse_pattern("reading($device)"))
    False
    """
    kind = _special(allowed)
    if kind in ("_", "$"):
        wanted, below = _parts(allowed)
        return (wanted is None or _has_class(asked, wanted)) and (below is None or covers(below, asked))
    if kind == "lit":
        constant = _constant(asked)
        return constant is not None and same(constant[0], allowed.fields[0])  # type: ignore[union-attr]  # a record
    if kind == "exact":
        return same(allowed, asked)
    if _special(asked) == "$":
        below = _parts(asked)[1]
        return below is not None and covers(allowed, below)
    if _special(asked) == "exact":
        inner = asked.fields[0]  # type: ignore[union-attr]  # a record
        return _special(inner) is None and _covers_structure(
            allowed, inner
        )  # inside it, reserved labels are plain ones
    if _special(asked) == "lit":
        return matcher(allowed)(asked.fields[0]) is not None  # type: ignore[union-attr]  # a record
    return _special(asked) is None and _covers_structure(allowed, asked)


def _covers_structure(allowed: Pattern, asked: Pattern) -> bool:
    if allowed.__class__ is not asked.__class__:
        return False
    if isinstance(allowed, Record) and isinstance(asked, Record):
        return same(allowed.label, asked.label) and _covers_all(allowed.fields, asked.fields)
    if isinstance(allowed, tuple) and isinstance(asked, tuple):
        return _covers_all(allowed, asked)
    if isinstance(allowed, Map) and isinstance(asked, Map):
        return all(name in asked and covers(part, asked[name]) for name, part in allowed.pairs())
    return same(allowed, asked)


def _covers_all(allowed: tuple[Value, ...], asked: tuple[Value, ...]) -> bool:
    """True if each part of ``allowed`` covers that of ``asked``, which may name more parts."""
    return len(asked) >= len(allowed) and all(map(covers, allowed, asked))


def _special(pattern: Pattern) -> str | None:
    """Returns which of the four reserved records a pattern is; None if it is none of them."""
    if isinstance(pattern, Record) and pattern.label in ("_", "$", "lit", "exact"):
        return str(pattern.label)
    return None


def _parts(pattern: Pattern) -> tuple[str | None, Pattern | None]:
    """Returns the class and the inner pattern of a discard or a capture."""
    assert isinstance(pattern, Record)  # a discard or a capture
    if pattern.label == "_":
        return (str(pattern.fields[0]) if pattern.fields else None), None
    _, of_class, below = pattern.fields
    below = lit(None) if below is None else below  # null is a pattern as well, other than no pattern
    return (None if of_class is None else str(of_class)), below


def _has_class(asked: Pattern, wanted: str) -> bool:
    kind = _special(asked)
    if kind in ("_", "$"):
        of_class, below = _parts(asked)
        return of_class == wanted or (below is not None and _has_class(below, wanted))
    if kind in ("lit", "exact"):
        return _is(asked.fields[0], wanted)  # type: ignore[union-attr]  # a record
    return _is(asked, wanted)


def _is(value: Value, wanted: str) -> bool:
    return value.__class__ is ATOM_CLASSES[wanted]


def _constant(asked: Pattern) -> tuple[Value] | None:
    """Returns the only value that is asked for, in a tuple; None if there may be several."""
    kind = _special(asked)
    if kind == "lit":
        return (asked.fields[0],)  # type: ignore[union-attr]  # a record
    if kind == "$":
        below = _parts(asked)[1]
        return None if below is None else _constant(below)
    return None if kind is not None or isinstance(asked, Record | tuple | Map) else (asked,)


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


def _matchers(scope: Scope) -> list[Callable[[Value], object]] | None:
    """Returns a function for each allowed pattern, which matches values; None where everything is allowed."""
    if scope is True:
        return None
    return [] if scope is False else [matcher(parse_pattern(text)) for text in scope]


def _within(scope: Scope, allows: Callable[[str], bool]) -> bool:
    return scope if isinstance(scope, bool) else any(map(allows, scope))
