"""Starts recipes as programs: ``starter.py``, with a line of JSON for each on its input.

Each is forked from this process, which has imported what they need, so that nine start in the time of one.
The process of a program is all its own, to be killed and stopped; its output goes to a pipe with a name.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import runpy
import signal
import sqlite3
import sys
import traceback
from pathlib import Path
from typing import Final

import anyio
import starlette.applications
import starlette.responses
import trio

from dataspace import Record, exactly

_READY = (asyncio, sqlite3, anyio, starlette.responses, trio, Record, exactly)


PROGRAMS: Final = {".mjs": ("node", "--experimental-websocket"), ".sh": ("sh",)}
"""What runs a recipe that is not in Python, by the end of its name."""


def run(path: str, words: list[str], out: str, typed: str, environment: dict[str, str]) -> None:
    """Runs one program in this process, and ends it; ``typed`` is the file of its input."""
    writer = os.open(out, os.O_WRONLY)
    os.dup2(writer, 1)
    os.close(writer)
    os.dup2(os.open(typed, os.O_RDONLY), 0)
    os.environ.update(environment)
    random.seed()
    sys.argv = [path, *words]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # so that a script is killed with what it runs
    if command := PROGRAMS.get(Path(path).suffix):
        os.execvp(command[0], [*command, path, *words])
    code = 1
    try:
        runpy.run_path(path, run_name="__main__")
        code = 0
    finally:  # not further up, where the input of the process that was forked is read
        if code:
            traceback.print_exc()
        os._exit(code)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that end are not waited for
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            run(**asked)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
