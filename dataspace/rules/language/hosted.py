"""Functions of the host: what rules calculate by code of the machine that carries them out.

A host registers each under a name with a point in it, such as ``geo.distance``, with the classes of its
arguments and of its result.  The point tells a call from a record: a text means the same wherever it is
read, and a name that is not registered is refused.  Readers of texts that others carry out take any name.

The contract is that a function is pure: the same arguments give the same result, and nothing else happens.
Rules call it when rows come, and again when they go.

Always: a result is a value of the declared class; anything else that a function does, raising included, is a
``UsageError`` with its name.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from dataspace.rules.language.arithmetic import MAX_BITS
from dataspace.rules.language.declarations import KINDS
from dataspace.rules.language.functions import (
    BYTES_OF_WORK,
    CALENDAR,
    MAX_MADE,
    Function,
    begun,
    kind_of,
    with_article,
)
from dataspace.rules.language.ordering import Pay
from dataspace.rules.language.syntax import (
    Aggregate,
    Comparison,
    Elements,
    Expression,
    FunctionCall,
    Rule,
    TimeKind,
    parts_of,
)
from index.errors import UsageError
from index.values.atoms import KEYWORDS
from index.values.freezing import freeze
from index.values.scanner import WORD
from index.values.values import Map, Record, Value

logger = logging.getLogger("dataspace")

Functions: TypeAlias = Mapping[str, Function]
"""Functions of the host, by their names."""

NO_FUNCTIONS: Final[Functions] = {}

COST: Final = 10
"""Units of work that a call counts for, where nothing else is said."""

LONGEST: Final = 0.25
"""Seconds that a call may take, where nothing else is said."""

UNCHARGED: Final = 1_000_000
"""Nanoseconds of a call that its cost pays for; further microseconds are a unit of work each."""

MAX_ARGUMENTS: Final = 16
MAX_COST: Final = 1_000_000
MAX_SAID: Final = 300
"""Characters of the message of an exception that are shown."""

NAME: Final = re.compile(rf"({WORD.pattern})\.({WORD.pattern})")
CALL: Final = re.compile(rf"({NAME.pattern})\(")

RESERVED: Final = KEYWORDS.keys() | {
    *("_", "at", "distinct", "final", "for", "if", "in", "let", "next", "not", "now", "of", "or"),
    *("relation", "send", "strict", "within"),
}
"""Words that the name of a function cannot begin with."""

_CLASSES: Final[dict[str, tuple[type, ...]]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float,),
    "number": (int, float),
    "str": (str,),
    "bytes": (bytes,),
    "time": (datetime,),
    "record": (Record,),
    "seq": (tuple,),
    "map": (Map,),
    "null": (type(None),),
    "any": (bool, int, float, str, bytes, datetime, Record, tuple, Map, type(None)),
}


class UnknownFunction(UsageError):
    """A function was called that the reader of its text took for one without knowing it."""


class TooSlow(UsageError):
    """A call took longer than it may; the result is not used."""


class CallFailed(UsageError):
    """The code of a function raised, or gave what it may not; ``about`` stands for the call."""

    def __init__(self, text: str, about: int) -> None:
        super().__init__(text)
        self.about: Final = about


def _still() -> int:
    return 0


@dataclass(frozen=True, slots=True)
class HostFunction(Function):
    """A function of the host; ``host_function`` makes one.

    ``classes`` and ``result`` are the declared classes.  A call costs ``cost`` units of work.  By the
    ``clock`` it may take ``longest`` nanoseconds, which are looked at once it has ended.
    """

    classes: tuple[frozenset[type], ...] = ()
    result: frozenset[type] = frozenset()
    names: tuple[str, ...] = ()
    """How the classes of the arguments, and at last of the result, are declared."""
    cost: int = COST
    longest: int = round(LONGEST * 1e9)
    clock: Callable[[], int] = _still

    def named_at(self, at: int) -> str:
        """As for any function, with the declared classes."""
        return self.names[at].replace("|", " or ")

    def apply(self, pay: Pay, *arguments: Value) -> Value:
        """As for any function; ``TooSlow`` for a call that took too long."""
        for at, value in enumerate(arguments):
            if value.__class__ not in self.classes[at]:
                raise self.refusal(at, f"{begun(value)}, {with_article(kind_of(value))}")
        pay(self.cost * BYTES_OF_WORK)
        since = self.clock()
        try:
            result = self.run(*arguments)
        except (Exception, SystemExit) as error:  # a fence around code of the host: only its rule fails
            logger.debug("%s raised", self.name, exc_info=True)
            self._took(pay, self.clock() - since)
            raise self._failed(arguments, f"{self.name} raised {_said(error)}") from None
        if (took := self.clock() - since) > UNCHARGED:
            self._took(pay, took)
        kind = result.__class__
        if kind is not float and kind is not bool and result is not None:
            try:
                result = self._frozen(result)
            except UsageError as error:
                raise self._failed(arguments, str(error)) from None
            kind = result.__class__
        if kind not in self.result:
            found = f"{begun(result)}, {with_article(kind_of(result))}"
            reason = f"{self.name} gives {self.named_at(-1)}, as declared, but gave {found}"
            raise self._failed(arguments, reason)
        return result  # a value of one of the classes

    def _failed(self, arguments: tuple[Value, ...], reason: str) -> CallFailed:
        return CallFailed(reason, hash((self.name, arguments)))

    def _took(self, pay: Pay, took: int) -> None:
        """Counts the time of a call as work."""
        if took > self.longest:
            raise TooSlow(
                f"{self.name} took {took / 1e9:.3f} s for one call,"
                f" longest = {self.longest / 1e9:g} s in [[functions]]"
            )
        if took > UNCHARGED:
            pay((took - UNCHARGED) // 1000 * BYTES_OF_WORK)

    def _frozen(self, result: object) -> Value:
        """Returns the value of what the function returned, within bounds."""
        try:
            value = freeze(result, elements=MAX_MADE)
        except UsageError as error:
            raise UsageError(f"{self.name} gave no value of rules: {error}") from None
        if value.__class__ is int:
            if value.bit_length() > MAX_BITS:
                raise UsageError(f"{self.name} gave a number of more than {MAX_BITS} bits")
        elif value.__class__ in (str, bytes) and len(value) > MAX_MADE:
            raise UsageError(f"{self.name} gave {len(value)} characters, limit {MAX_MADE}")
        return value


def _said(error: BaseException) -> str:
    """Returns the kind of an exception and the beginning of its message, as a text that can be logged."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # code of the host as well
        text = ""
    text = text.encode(errors="backslashreplace").decode()
    text = text if len(text) <= MAX_SAID else f"{text[:MAX_SAID]}…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def host_function(
    name: str,
    run: Callable[..., Any],
    takes: Sequence[str],
    gives: str,
    *,
    cost: int = COST,
    longest: float = LONGEST,
    clock: Callable[[], int] | None = None,
) -> HostFunction:
    """Returns a function that rules may call; ``UsageError`` says what is wrong with its declaration.

    Classes are named as in declared relations, several with ``|`` between them.  ``longest`` is in seconds;
    the ``clock`` gives nanoseconds, and without it calls may take any time.

    >>> host_function("geo.half", lambda n: n / 2, ["number"], "float").apply(print, 3)
    640
    1.5
    """
    found = NAME.fullmatch(name)
    if found is None:
        raise UsageError(
            f"{name!r:.80} is no name of a function of the host: two words with a point between them, such"
            " as geo.distance"
        )
    if found[1] in RESERVED:
        raise UsageError(f"{name!r:.80}: {found[1]} is a word of rules; begin the name with another one")
    if not takes:
        raise UsageError(f"{name} takes nothing: a constant is named by let in the text of a rule")
    if len(takes) > MAX_ARGUMENTS:
        raise UsageError(f"{name} takes {len(takes)} arguments, limit {MAX_ARGUMENTS}")
    classes = [_classes(name, each) for each in (*takes, gives)]
    if not callable(run):
        raise UsageError(f"{name}: {run!r:.80} is no function")
    if inspect.iscoroutinefunction(run) or inspect.isgeneratorfunction(run):
        raise UsageError(f"{name}: {_where(run)} is no plain function: rules need its result at once")
    try:
        inspect.signature(run).bind(*takes)
    except TypeError as error:
        raise UsageError(
            f"{name} is declared with {len(takes)} arguments, but {_where(run)} takes"
            f" {inspect.signature(run)}: {error}"
        ) from None
    except ValueError:
        pass  # some functions in C state none
    if not 1 <= cost <= MAX_COST:
        raise UsageError(f"{name} costs {cost} units of work: from 1 to {MAX_COST} are possible")
    *kinds, result_kind = [_kinds(each) for each in (*takes, gives)]
    return HostFunction(
        name,
        tuple(kinds),
        result_kind,
        run,
        classes=tuple(classes[:-1]),
        result=classes[-1],
        names=(*takes, gives),
        cost=cost,
        longest=round(longest * 1e9),
        clock=clock or _still,
    )


def _classes(name: str, declared: str) -> frozenset[type]:
    for word in declared.split("|"):
        if word not in _CLASSES:
            near = get_close_matches(word, _CLASSES, 1, 0.5)
            hint = f": did you mean {near[0]}?" if near else ""
            raise UsageError(f"{name}: no class {word!r:.80}, which are {' '.join(_CLASSES)}{hint}")
    return frozenset(kind for each in declared.split("|") for kind in _CLASSES[each])


def _kinds(declared: str) -> str:
    kinds = dict.fromkeys([KINDS[each] for each in declared.split("|")])
    return "" if "" in kinds else "|".join(kinds)


def _where(run: Callable[..., Any]) -> str:
    name = getattr(run, "__qualname__", type(run).__qualname__)
    return f"{getattr(run, '__module__', '?')}:{name}"


def called(name: str, functions: Functions | None) -> Function:
    """Returns the function of a name; without ``functions`` a function that cannot be called.

    Raises ``UsageError``, with the nearest name, for a name that is not registered.
    """
    if functions is None:
        return _unknown(name)
    function = functions.get(name)
    if function is not None:
        return function
    last = name.partition(".")[2]
    near = get_close_matches(name, functions, 1, 0.6)
    near = near or [each for each in functions if each.partition(".")[2] == last]
    if near:
        hint = f"did you mean {near[0]}?"
    elif functions:
        hint = f"registered are {', '.join(sorted(functions)[:20])}"
    else:
        hint = (
            "[[functions]] in the configuration of a daemon registers them, and rule test reads them with"
            " --config FILE"
        )
    raise UsageError(f"no function {name:.80} is registered here: {hint}")


def calls_in(rule: Rule) -> Iterator[str]:
    """Yields the names of the functions of the host that a rule without groups calls."""
    for argument in rule.head.arguments:
        yield from _calls(argument)
    for literal in rule.body:
        if isinstance(literal, Comparison):
            yield from _calls(literal.left)
            yield from _calls(literal.right)
        elif isinstance(literal, Elements):
            yield from _calls(literal.of)


def _calls(expression: Expression | Aggregate) -> Iterator[str]:
    if isinstance(expression, FunctionCall) and expression.hosted is not None:
        yield expression.name
    for part in parts_of(expression):
        yield from _calls(part)


def reads_zones(rule: Rule) -> bool:
    """True if a rule that is carried out calls functions of a calendar."""
    sides = [side for each in rule.body if isinstance(each, Comparison) for side in (each.left, each.right)]
    members = [each.of for each in rule.body if isinstance(each, Elements)]
    is_clock = rule.form is not None and rule.form.kind is TimeKind.CLOCK
    return is_clock or any(map(_calls_calendar, [*rule.head.arguments, *sides, *members]))


def _calls_calendar(expression: Expression | Aggregate) -> bool:
    if isinstance(expression, FunctionCall) and expression.function is CALENDAR.get(expression.name):
        return True
    return any(map(_calls_calendar, parts_of(expression)))


def _unknown(name: str) -> Function:
    def run(*_: Value) -> Value:
        raise UnknownFunction(f"{name} is a function of the daemon's")

    return Function(name, ("",), "", run, least=0, most=MAX_ARGUMENTS)
