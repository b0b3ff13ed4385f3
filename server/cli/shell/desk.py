"""The commands at the prompt: which of them runs, and what the shell itself asserts and observes.

Most are the commands of the same name, with the same options and messages, on the shell's connection.  Its
own are those about facts of this shell, observations in the background, and help.

Always: a command that fails raises a ``DataspaceError``, or ends with an exit code other than 0; the shell
goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

import trio

from dataspace.client.session.turns import Claim, Draft
from dataspace.client.space import RemoteSpace
from dataspace.errors import DataspaceError, UsageError
from dataspace.facts import as_it_is
from dataspace.kernel.epoch_changes import EpochChanges
from index.patterns.patterns import matcher
from index.patterns.text import parse
from index.values.values import Value, same
from server.cli.lasting import facts
from server.cli.once import get, sessions, status, turns
from server.cli.output import change_text, counted, say, tame
from server.cli.parser import COMMANDS, parse as parse_words, parser
from server.cli.rule import rule
from server.cli.shell.helping import ALONE, HELP
from server.cli.shell.line import LentClient, Line
from server.cli.shell.words import parted, words_of
from server.cli.values import given, has_pattern, parsed

ONCE: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "get": get.get,
    "query": get.query,
    "send": turns.send,
    "assert": turns.assert_,
    "retract": turns.retract,
    "put": turns.put,
    "status": status.status,
    "index": status.index,
    "owners": status.owners,
    "actors": status.actors,
    "sessions": sessions.sessions,
}
LASTING: Final[dict[str, Callable[[argparse.Namespace], Awaitable[int]]]] = {
    "observe": facts.observe,
    "log": facts.log,
    "rule": rule,
}
WHOLE: Final = frozenset(["get", "query", "put", "observe", "log", "owners", "why", "why-not"])
"""Commands about one text, which may have blanks."""

ELSEWHERE: Final = ("--url", "--wait", "--space", "--token", "--token-file", "--tls-ca", "--tls-certificate")
"""Options that name a daemon: the shell has one."""

_TURNS: Final = 5

NAMES: Final = sorted([*ONCE, *LASTING, *ALONE, "why", "why-not"])


class Desk:
    """What is done at one prompt."""

    def __init__(self, line: Line, args: argparse.Namespace) -> None:
        self._line = line
        self._args = args
        self._claims: list[Claim] = []
        self._seen: dict[int, trio.CancelScope] = {}
        self._count = 0

    @property
    def claims(self) -> int:
        """How many facts the shell asserts."""
        return len(self._claims)

    def do(self, text: str) -> int:
        """Carries out a line; returns its exit code, raises ``DataspaceError`` where it fails."""
        name, *rest = words_of(text) or [""]
        if not name:
            return 0
        if name not in NAMES:
            raise UsageError(_unknown(name))
        is_background = name == "observe" and rest[-1:] == ["&"]
        words, options = parted(rest[:-1] if is_background else rest)
        for option in options:
            if option.split("=")[0] in ELSEWHERE:
                raise UsageError(f"{option.split('=')[0]}: this shell is connected; start another one for it")
        if name in ALONE:
            return {"help": self._help, "unobserve": self._unobserve}[name](words)
        if name in WHOLE and words:
            words = [" ".join(words)]
        if is_background:
            if options or not words:
                raise UsageError("in the background, observe takes a pattern alone: observe task($n, _) &")
            return self._observe(words[0])
        whose = _WHOSE if name == "retract" else _WHOSE[:2]
        owned = any(each.split("=")[0] in whose for each in options)
        if name in _OWN and not owned and words and "--help" not in options:
            return _OWN[name](self, words, options)
        return self._run(name, words, options)

    def _run(self, name: str, words: list[str], options: list[str]) -> int:
        if name in ("why", "why-not"):
            name, words = "rule", [name, *words]
        if name in ("get", "query") and not {"--json", "--csv", "--table"} & {*options}:
            options = ["--table", *options]
        if name == "send" and words == ["-"]:
            raise UsageError("send - reads the standard input, which the shell does")
        args = parse_words([name, *words, *options])
        args.lent = LentClient(self._line)
        if name in ONCE:
            return ONCE[name](args)
        return self._line.run(LASTING[name], args)

    # -- facts of the shell ----------------------------------------------------------------------------

    def _assert(self, words: list[str], options: list[str]) -> int:
        """Asserts facts that last as long as the shell."""
        if options:
            raise UsageError(f"{options[0]}: assert takes --owner NAME, or lasts as long as the shell")
        values = given(words)
        draft = self._line.call(_draft)
        claims = [draft.assert_(as_it_is(value)) for value in values]
        epoch = self._line.call(_committing, draft)
        self._claims += claims
        say(f"asserted {counted(len(claims), 'fact')} in epoch {epoch}, until this shell ends")
        return 0

    def _retract(self, words: list[str], options: list[str]) -> int:
        """Retracts facts of the shell that are named, or that patterns match."""
        if options:
            raise UsageError(f"{options[0]}: retract takes --owner NAME, or is about facts of this shell")
        going: list[Claim] = []
        for word in words:
            found = [claim for claim in self._claims if claim not in going and _means(word, claim.value)]
            if not found:
                hint = "of a durable owner? name it with --owner"
                raise UsageError(f"this shell asserts nothing that {word} matches; {hint}")
            going += found
        draft = self._line.call(_draft)
        for claim in going:
            draft.retract(claim)
        epoch = self._line.call(_committing, draft)
        self._claims = [claim for claim in self._claims if claim not in going]
        say(f"retracted {counted(len(going), 'fact')} in epoch {epoch}")
        return 0

    # -- observations in the background ----------------------------------------------------------------

    def _observe(self, text: str) -> int:
        """Observes in the background: changes are shown before the next prompt."""
        pattern = parsed(text)
        self._count += 1
        number, scope = self._count, trio.CancelScope()
        say(f"[{number}] observing {text}; unobserve {number} ends it")
        self._seen[number] = scope
        self._line.call(_start, partial(_follow, pattern, number, scope, self._line))
        return 0

    def settle(self) -> None:
        """Returns when the changes that have been made until now are noted, if any are observed."""
        if self._seen:
            self._line.call(_settle)

    def _unobserve(self, words: list[str]) -> int:
        wanted = [int(word) for word in words if word.isdecimal()] if words else list(self._seen)
        if len(wanted) < len(words) or not {*wanted} <= self._seen.keys():
            known = ", ".join(map(str, self._seen)) or "none"
            raise UsageError(f"{' '.join(words)}: no such observation in the background; there is {known}")
        for number in wanted:
            self._line.call(_cancel, self._seen.pop(number))
        say(f"ended {counted(len(wanted), 'observation')}")
        return 0

    # -- help ------------------------------------------------------------------------------------------

    def _help(self, words: list[str]) -> int:
        if not words:
            print(HELP, end="", flush=True)
            return 0
        (name, *_) = words
        if name in ALONE:
            print(ALONE[name], flush=True)
            return 0
        if name not in NAMES:
            raise UsageError(_unknown(name))
        return self._run(name, [], ["--help"])

    # -- completion ------------------------------------------------------------------------------------

    def complete(self, before: str, text: str, labels: Callable[[], list[str]]) -> list[str]:
        """Returns what may follow in a line: commands, options of its command, or labels."""
        words = before.split()
        if not words:
            return [f"{name} " for name in NAMES if name.startswith(text)]
        if text.startswith("-"):
            return [f"{option} " for option in _options(words[0]) if option.startswith(text)]
        if words[0] == "help":
            return [name for name in NAMES if name.startswith(text)]
        return [f"{label}(" for label in labels() if label.startswith(text)]


_OWN: Final[dict[str, Callable[[Desk, list[str], list[str]], int]]] = {
    "assert": Desk._assert,
    "retract": Desk._retract,
}
"""Commands that are about facts of the shell, unless an owner is named."""


_WHOSE: Final = ("--durable", "--owner", "--lease")


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    if name in COMMANDS:
        return f"{name} is a command of its own: dataspace {name}; help shows what there is here"
    near = get_close_matches(name, NAMES, n=1)
    if near:
        return f"{name!r:.40} is no command; did you mean {near[0]}?"
    return f"{name!r:.40} is no command; help shows what there is"


def _means(word: str, fact: Value) -> bool:
    """True if a fact is the one that is written, or is matched by a pattern."""
    value = parse(word)
    if has_pattern(value):
        return matcher(parsed(word))(fact) is not None
    return same(value, fact)


def _options(name: str) -> list[str]:
    """Returns the options of a command that make sense here."""
    if name in ("why", "why-not"):
        return ["--json"]
    if name not in COMMANDS:
        return []
    whole = parser(name)
    chosen = next(each for each in whole._actions if isinstance(each, argparse._SubParsersAction))
    options = chosen.choices[name]._option_string_actions
    return sorted(option for option in options if option.startswith("--") and option not in ELSEWHERE)


# -- in the thread of the connection -------------------------------------------------------------------


async def _draft(space: RemoteSpace) -> Draft:
    return space.draft()


async def _committing(space: RemoteSpace, draft: Draft) -> int:
    return await space.commit(draft)


async def _start(space: RemoteSpace, task: Callable[[RemoteSpace, trio.Event], Awaitable[None]]) -> None:
    """Starts a task, and returns when it has noted what there is."""
    began = trio.Event()
    space.session.start_soon(partial(task, space, began))
    await began.wait()


async def _settle(space: RemoteSpace) -> None:
    await space.sync()  # the changes of a turn are sent before the answer to what follows it
    for _ in range(_TURNS):  # in which tasks that have changes to read read them
        await trio.lowlevel.checkpoint()


async def _cancel(_space: RemoteSpace, scope: trio.CancelScope) -> None:
    scope.cancel()


async def _follow(
    pattern: Value,
    number: int,
    scope: trio.CancelScope,
    line: Line,
    space: RemoteSpace,
    began: trio.Event,
) -> None:
    """Notes each change of a pattern, until the scope is cancelled; ``began`` once the state is noted."""
    with scope:
        try:
            async with space.observe(pattern) as observation:
                async for epoch in observation.epochs():
                    line.notices.extend(_noted(number, epoch))
                    began.set()
        except DataspaceError as error:
            line.notices.append(f"[{number}] ended: {error}")
    began.set()


def _noted(number: int, epoch: EpochChanges) -> Iterator[str]:
    """Yields a line for each change of an epoch."""
    if epoch.lost:
        yield f"[{number}] {epoch.lost} changes were dropped"
        return
    for change in epoch:
        yield tame(f"[{number}] {change_text(change)}")
