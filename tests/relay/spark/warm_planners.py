"""Planning processes of Spark's queries, each forked from one that has loaded PySpark, Arrow and the format.

Spark starts a Python for each streaming query and ends it with the query.  Loading takes half a second of CPU
time, nearly half of what a short query costs.  Spark's daemons of workers start as ever: a session has few,
and they must load nothing before they fork.

Always: a forked process has the environment, folder, streams, path and random numbers of one that Spark has
started, and is killed with it.  What an interpreter reads at its start must be as here, or it is not forked.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from tests import warm

STAND_IN: Final = Path(__file__).with_name("stand_in.py")
LOADED: Final = (
    *("pyspark.sql.streaming.python_streaming_source_runner", "pyspark.cloudpickle", "pyarrow"),
    *("relay.spark.format", "relay.spark.source.source"),
)
GIVEN: Final = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES"}
"""What Spark adds to the environment of its Python processes and an interpreter reads."""

OF_SPARK: Final = ("PYTHON_WORKER_", "PYTHON_UNIX_DOMAIN", "PYTHON_DAEMON_", "PYTHON_UDF_", "PYTHON_FAULT")
"""Beginnings of variables that only PySpark reads."""

MOST: Final = 150_000
"""Bytes of one request; most of it is an environment."""


@cache
def python_of_spark() -> str:
    """Returns a program for ``PYSPARK_PYTHON``: Python, but for planning processes, which are forked.

    It and the process that forks are there until this one ends.  Elsewhere than on Linux it is Python itself.
    """
    if sys.platform != "linux":
        return sys.executable
    folder = Path(tempfile.mkdtemp(prefix="planners-"))
    program, place = folder / "python", str(folder / "asked")
    words = [sys.executable, "-IS", str(STAND_IN), place, sys.executable]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o755)
    here, there = socket.socketpair()
    with there, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(place)
        listening.listen(16)  # who comes before all is loaded waits
        passed = [listening.fileno(), there.fileno()]
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.relay.spark.warm_planners", *map(str, passed)],
            env=os.environ | GIVEN,
            pass_fds=passed,
            start_new_session=True,  # as Spark's processes it is no one's whom the terminal interrupts
        )

    def end() -> None:
        here.close()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return str(program)


def read_at_start(environment: dict[str, str]) -> dict[str, str]:
    """What an interpreter reads of an environment, but for its path, which a process can be given later."""
    found = warm.read_at_start({k: v for k, v in environment.items() if not k.startswith(OF_SPARK)})
    return {name: value for name, value in found.items() if name and name not in warm.BYTECODE}


def serve(listening: socket.socket, end: socket.socket) -> str:
    """Forks as often as it is asked; returns the program in each forked process, and ends with the test."""
    for name in LOADED:
        importlib.import_module(name)
    own = warm.changing()
    path = list(sys.path)
    gc.collect()
    gc.freeze()  # or the first collection of each process would copy all of it
    while end not in select.select([listening, end], [], [])[0]:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        asking, _ = listening.accept()
        with asking:
            said, streams, _, _ = socket.recv_fds(asking, MOST, warm.STREAMS + 1)
            [program, *words], environment, folder = json.loads(said)
            if read_at_start(environment) == read_at_start(dict(os.environ)):
                process = os.fork()
                if not process:
                    for each in (listening, end, asking):
                        each.close()
                    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as PySpark has it for all that it starts
                    os.chdir(folder)
                    sys.path[:] = _path(environment, folder, path)
                    warm.become(program, words, environment, streams[: warm.STREAMS], own)
                    threading.Thread(target=_end_with, args=(streams[warm.STREAMS],), daemon=True).start()
                    return str(program)
                descriptor = os.pidfd_open(process)
                socket.send_fds(asking, [b"."], [descriptor])
                os.close(descriptor)
        for number in streams:
            os.close(number)
    sys.exit()


def _path(environment: dict[str, str], folder: str, path: Sequence[str]) -> list[str]:
    """Returns where a new process would find modules: its folder, what it is told, what is installed."""
    told = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    return list(dict.fromkeys([folder, *told, *path]))


def _end_with(pipe: int) -> None:
    """Kills this process at once when nobody has the other end of a pipe any more."""
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    opened = [socket.socket(fileno=int(word)) for word in sys.argv[1:]]
    named = serve(*opened)
    runpy.run_module(named, run_name="__main__", alter_sys=True)
