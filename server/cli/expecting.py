"""Options by which a command changes something only if the space is as its user thinks.

Always: the daemon judges expectations in the epoch of the change; if one does not hold, nothing has happened,
the facts found are printed to standard error, and the exit code is ``NOT_AS_EXPECTED``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Final

from dataspace.errors import ExpectationFailed, UsageError
from dataspace.kernel.expectations import Expectation, absent, exactly, unchanged
from index.patterns.patterns import capture_names
from index.patterns.text import unparse
from index.values.values import Record, Value
from server.cli.output import say, tame
from server.cli.values import parsed

NOT_AS_EXPECTED: Final = 4
"""The exit code of a command whose expectation does not hold."""


def expectations(args: argparse.Namespace, concerned: Iterable[Value] = ()) -> list[Expectation]:
    """Returns what the options of a command expect; ``concerned`` are patterns of the facts that it changes.

    Raises ``UsageError`` for a pattern that captures where it is only asked whether there is a match.
    """
    made: list[Expectation] = []
    for text in args.expect or ():
        pattern = parsed(text)
        if capture_names(pattern):
            raise UsageError(
                f"--expect {text:.200}: it is only asked whether there is a match: write _ for $NAME"
            )
        made.append(exactly(pattern, [()]))
    made += [absent(_whole(parsed(text))) for text in args.absent or ()]
    since: int | None = getattr(args, "unchanged_since", None)
    if since is not None:
        made += [unchanged(_whole(pattern), since=since) for pattern in concerned]
    return made


def check_single(expected: Sequence[Expectation], parts: int) -> None:
    """Raises ``UsageError`` where a command expects something of more than one turn."""
    if expected and parts > 1:
        raise UsageError(f"what is expected holds for one turn, and so many facts need {parts}: give fewer")


def tell(failed: ExpectationFailed, expected: Sequence[Expectation], now: Sequence[Value] = ()) -> int:
    """Prints the expectation that does not hold and the facts found; returns the exit code.

    ``now`` are facts that say more where nothing was found.
    """
    which = expected[failed.number - 1]
    pattern = which.pattern
    if isinstance(pattern, Record) and pattern.label == "$" and pattern.fields[:1] == (None,):
        which = which._replace(pattern=pattern.fields[2])  # as it was written
    found = f"; epoch {failed.epoch} changed it" if failed.epoch else ""
    say(tame(f"dataspace: nothing was done: expected {which}{found}"))
    for row in failed.rows:
        say(tame(f"found {' '.join(map(unparse, row))}") if row else "found a match")
    if failed.count > len(failed.rows):
        say(f"found {failed.count} in all")
    for fact in now:
        say(tame(f"there is {unparse(fact)}"))
    return NOT_AS_EXPECTED


def _whole(pattern: Value) -> Value:
    """Returns a pattern that captures all of a fact where this one captures nothing."""
    return pattern if capture_names(pattern) else Record("$", None, None, pattern)
