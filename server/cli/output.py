"""The output of the commands: changes as a line of text or of JSON, times and sizes.

Always: one change is one line, written out at once; each command prints through ``write`` and ``say``, which
escape the control characters of foreign text; line ends in it are escaped where a line is made (``tame``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from datetime import datetime
from itertools import islice

from dataspace.foreign import tame, tame_lines
from dataspace.kernel.changes import Change, EpochChanges
from index.patterns.text import unparse
from index.values.jsons import captures_json
from index.values.values import Value


def time_text(time: datetime) -> str:
    """Returns a UTC time in the form that the commands show.

    >>> from datetime import UTC
    >>> time_text(datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=UTC))
    '2026-01-02T03:04:05.600000Z'
    """
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def size_text(count: int) -> str:
    """Returns a number of bytes in a readable unit.

    >>> size_text(1536), size_text(12)
    ('1.5 KiB', '12 B')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


_take: ContextVar[Callable[[str], None] | None] = ContextVar("take", default=None)
"""Gets the lines of a command that runs in the background of a shell."""


def redirect(take: Callable[[str], None]) -> None:
    """Hands each line that this task writes to a function, instead of printing it."""
    _take.set(take)


def is_in_background() -> bool:
    """True if the lines of this task are not printed as they come."""
    return _take.get() is not None


def write(text: str) -> None:
    """Prints lines to the standard output, at once."""
    text, take = tame_lines(text), _take.get()
    if take is None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    else:
        for line in text.splitlines():
            take(line)


def say(text: str) -> None:
    """Prints a note to the standard error, apart from the output for other programs."""
    text, take = tame_lines(text), _take.get()
    if take is None:
        print(text, file=sys.stderr, flush=True)
    else:
        take(text)


def note(text: str) -> None:
    """Prints what a command is doing, if a person waits for it: not to a program, nor from the background."""
    if not is_in_background() and sys.stdout.isatty() and sys.stderr.isatty():
        say(text)


def counted(count: int, noun: str) -> str:
    """Returns a number with its noun.

    >>> counted(1, "fact"), counted(2, "fact")
    ('1 fact', '2 facts')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def epochs_text(epochs: Sequence[int]) -> str:
    """Returns where turns took effect.

    >>> epochs_text([7]), epochs_text([7, 9])
    ('epoch 7', '2 turns, epochs 7 to 9')
    """
    if len(epochs) == 1:
        return f"epoch {epochs[0]}"
    return f"{len(epochs)} turns, epochs {epochs[0]} to {epochs[-1]}"


def say_accepted(epochs: Sequence[int]) -> None:
    """Says how many turns have happened before one was refused, if any."""
    if epochs:
        say(f"dataspace: {counted(len(epochs), 'turn')} accepted before one was refused")


def print_epoch(epoch: EpochChanges, *, as_json: bool, most: int | None = None) -> int:
    """Prints the changes of one epoch, ``most`` at most; returns how many it printed."""
    changes: Iterator[Change] = islice(epoch, most)
    if epoch.lost:
        changes = iter(())
        _print_lost(epoch, as_json=as_json)
    lines = [change_json(change, epoch) if as_json else change_text(change) for change in changes]
    count = len(lines)
    if epoch.conflated and lines and not as_json:
        lines.insert(0, f"# epochs {epoch.first} to {epoch.number} at once: the net difference")
    if epoch.progress:
        lines.append(_progress_line(epoch, as_json=as_json))
    if lines:
        write("\n".join(lines))
    return count


def _print_lost(epoch: EpochChanges, *, as_json: bool) -> None:
    """Prints that changes were dropped here, which counts as none that is printed."""
    if as_json:
        line = json_line({"first_epoch": epoch.first, "epoch": epoch.number, "lost": epoch.lost})
    else:
        line = f"# epochs {epoch.first} to {epoch.number}: {epoch.lost} changes were dropped"
    write(line)


def json_line(thing: object) -> str:
    """Returns a value as one line of JSON, ASCII only and without control characters."""
    return tame(json.dumps(thing, ensure_ascii=not sys.stdout.encoding.lower().startswith("utf")))


def change_json(change: Change, epoch: EpochChanges) -> str:
    """Returns a change of an epoch as one line of JSON."""
    line: dict[str, object] = {
        "epoch": change.epoch,
        "time": time_text(change.time),
        "change": change.kind,
        "captures": captures_json(epoch.names, change.captures),
    }
    if epoch.conflated:
        line["first_epoch"] = epoch.first
    return json_line(line)


def _progress_line(epoch: EpochChanges, *, as_json: bool) -> str:
    if as_json:
        return json_line({"progress": epoch.number, "time": time_text(epoch.time)})
    return f"# all to epoch {epoch.number}"


def change_text(change: Change) -> str:
    """Returns a change as one line of text."""
    return f"{change.epoch} {change.kind} {captures_text(change.named.items())}".rstrip()


def captures_text(named: Iterable[tuple[str, Value]]) -> str:
    """Returns captures as commands show them: those without a name of their own by their place alone.

    >>> captures_text([("0", 7), ("who", "Ann")])
    '7 who="Ann"'
    """
    return " ".join(
        [unparse(value) if name.isdigit() else f"{name}={unparse(value)}" for name, value in named]
    )
