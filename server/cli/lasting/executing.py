"""``observe --exec``: a command for each change, one at a time.

The change is a line of JSON on the command's standard input, the same that ``observe --json`` prints, and in
its environment.  A value that does not fit into an environment is on the standard input alone.

Always: changes in order; the next command starts when the one before has ended, however it ended.
"""

from __future__ import annotations

import os
import subprocess
from typing import Final

import trio

from dataspace.kernel.epoch_changes import Change, EpochChanges
from index.patterns.text import unparse
from index.values.values import Value
from server.cli.output import change_json, say, time_text

LARGEST: Final = 65_536
"""Bytes of a value in an environment: systems allow 128 KiB for each variable."""


async def execute(epoch: EpochChanges, command: str, *, most: int | None = None) -> int:
    """Runs the command for each change of an epoch, ``most`` at most; returns for how many it did."""
    if epoch.lost:
        say(f"dataspace: epochs {epoch.first} to {epoch.number}: {epoch.lost} changes were dropped")
        return 0
    count = 0
    for change in epoch:
        if count == most:
            break
        await _run(change, epoch, command)
        count += 1
    return count


async def _run(change: Change, epoch: EpochChanges, command: str) -> None:
    """Runs the command for one change; says how it ended if it failed."""
    line = change_json(change, epoch) + "\n"
    try:
        done = await trio.run_process(
            ["/bin/sh", "-c", command],
            stdin=line.encode(),
            check=False,
            env=os.environ | environment(change),
        )
    except (OSError, subprocess.SubprocessError) as error:
        say(f"dataspace: cannot run {command}: {error}")
        return
    if done.returncode:
        say(f"dataspace: {command} ended with {done.returncode} for {change.kind} in epoch {change.epoch}")


def environment(change: Change) -> dict[str, str]:
    """Returns the variables of a change: text as it is, other values as in patterns."""
    variables = {
        "DATASPACE_CHANGE": change.kind,
        "DATASPACE_EPOCH": str(change.epoch),
        "DATASPACE_TIME": time_text(change.time),
    }
    for name, value in change.named.items():
        text = _text(value)
        if len(text.encode(errors="surrogatepass")) <= LARGEST:
            variables[f"DATASPACE_CAPTURE_{name}"] = text
    return variables


def _text(value: Value) -> str:
    """Returns a value as text that an environment can hold: without zero bytes."""
    return value if isinstance(value, str) and "\0" not in value else unparse(value)
