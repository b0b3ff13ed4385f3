"""Processes of the command ``dataspace`` that need not load it: each is forked from one that has.

Loading takes nine tenths of the CPU time of a daemon that a test starts, and tests start a thousand.  A
forked process is a child of its test as any other: it has its own arguments, environment, streams, exit code.

Always: what cannot be forked starts as with ``subprocess``: other programs, options of Python, other folders,
descriptors that are passed on, variables that a new interpreter reads, and all where there is no Linux.  Two
processes that start one after the other differ in the order of their sets, as they would: two fork, in turn.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import inspect
import json
import mmap
import os
import random
import runpy
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import cycle
from threading import Lock
from types import ModuleType
from typing import Any, Final, TypeAlias

from dataspace import faults

PYTHON: Final = [sys.executable, "-m"]
COMMANDS: Final = [[*PYTHON, program] for program in ("dataspace", "tests.planted.starting")]
LOADED: Final = (
    *("server.cli.main", "server.daemon.command", "server.cli.lasting.facts", "server.cli.lasting.run"),
    *("dataspace.client.bulk.client", "dataspace.client.bulk.short", "encodings.idna"),
    *("server.web.routes.app", "server.cluster.database.store"),
)
"""What processes load; anything else, and what is not installed, is loaded by those that need it."""

FORKING: Final = 2
READ_AT_START: Final = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
"""Beginnings of variables that are read before any module is loaded."""

BYTECODE: Final = ("PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE")
"""Those among them that a process can be given later."""

PLAIN: Final = {
    "preexec_fn": None,
    "pass_fds": (),
    "cwd": None,
    "shell": False,
    "restore_signals": True,
    "gid": None,
    "gids": None,
    "uid": None,
    "umask": -1,
    "process_group": -1,
}
"""Arguments of ``Popen`` with which a process can be forked."""

BEGUN: Final = dict(os.environ)
FOLDER: Final = os.getcwd()

NETWORK: Final = "/proc/thread-self/ns/net"
NEWNET: Final = 0x4000_0000
"""``CLONE_NEWNET``: a namespace of networks, in which a process of this thread would start."""

STREAMS: Final = 3
PIPES: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")

SUBREAPER: Final = 36
"""``PR_SET_CHILD_SUBREAPER`` of ``prctl``: the orphans of a process's children become its own children."""

Own: TypeAlias = tuple[ModuleType, str, object]
"""A module, a name in it, and the value there."""

MOST: Final = 50_000
"""Characters of words; more would not fit into a message beside an environment."""


class Popen(subprocess.Popen[str]):
    """As that of ``subprocess``, but forks what runs the command ``dataspace``."""

    def _execute_child(self, *args: Any) -> None:
        start: Callable[..., None] = super()._execute_child  # type: ignore[misc]  # has no type
        asked = inspect.signature(start).bind(*args).arguments
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        if not _can_be_forked(asked, environment):
            return start(*args)
        is_apart = asked["start_new_session"]
        said = json.dumps([asked["args"][len(PYTHON) :], environment, is_apart]).encode()
        pipes = [asked[name] for name in PIPES]
        streams = [own if own != -1 else number for number, own in enumerate((pipes[0], pipes[3], pipes[5]))]
        forking = _forking(next(_turns))
        network = [] if os.readlink(NETWORK) == forking.network else [os.open(NETWORK, os.O_RDONLY)]
        try:
            self.pid = forking.fork(said, streams + network)
        finally:
            for each in network:
                os.close(each)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # has no type


def run(
    *words: str, said: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, with what it finds on its standard input."""
    pipe = subprocess.PIPE
    with Popen(
        [*PYTHON, "dataspace", *words], env=env, encoding="utf-8", stdin=pipe, stdout=pipe, stderr=pipe
    ) as process:
        try:
            out, errors = process.communicate(said, timeout=120)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, errors)


# -- the side of the test --------------------------------------------------------------------------


class Forking:
    """A process that has loaded the command and forks, until the process ends that has started it."""

    def __init__(self) -> None:
        self._asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with asked:
            words = [sys.executable, "-m", "tests.warm", str(asked.fileno())]
            self._process = subprocess.Popen(words, env=BEGUN, pass_fds=[asked.fileno()])
        self.network = os.readlink(NETWORK)
        """Where it is: the thread of the first test that forks may be in one that was made for it."""

    def fork(self, asked: bytes, streams: Sequence[int]) -> int:
        """Returns the id of a new process, which is a child of this one."""
        with _lock:
            _adopt(True)
            try:
                socket.send_fds(self._asking, [asked], streams)
                return int(self._asking.recv(100))
            finally:
                _adopt(False)  # what a killed daemon leaves behind is init's

    def close(self) -> None:
        """Ends it."""
        self._asking.close()
        self._process.wait()


_lock = Lock()
_turns = cycle(range(FORKING))


@cache
def _forking(number: int) -> Forking:
    made = Forking()
    atexit.register(made.close)
    return made


def _adopt(orphans: bool) -> None:
    if ctypes.CDLL(None).prctl(SUBREAPER, int(orphans)):
        raise OSError("cannot adopt orphans")


def _can_be_forked(asked: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    return (
        sys.platform == "linux"
        and asked["args"][: len(PYTHON) + 1] in COMMANDS
        and sum(map(len, asked["args"])) < MOST
        and "PLANTED" not in environment  # a defect is planted before anything is loaded
        and all(asked[name] == value for name, value in PLAIN.items())
        and read_at_start(environment) == read_at_start(BEGUN)
        and os.getcwd() == FOLDER
    )


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """What a new interpreter reads of an environment, but for the folder in which it is."""
    found = {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}
    paths = [path for path in found.pop("PYTHONPATH", "").split(os.pathsep) if path not in ("", os.getcwd())]
    return {name: value for name, value in found.items() if name not in BYTECODE} | {
        "": os.pathsep.join(paths)
    }


# -- the side that forks ---------------------------------------------------------------------------


def serve(asked: socket.socket) -> str:
    """Forks as often as it is asked; returns the program in each forked process, and ends with the test."""
    for name in LOADED:
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
    own = changing()
    gc.collect()
    gc.freeze()  # or each process would copy all of it at its first collection
    forked = mmap.mmap(-1, 8)
    while True:
        said, streams, _, _ = socket.recv_fds(asked, 4 * MOST, STREAMS + 1)
        if not said:
            sys.exit()
        between = os.fork()
        if not between:
            if process := os.fork():
                forked[:] = process.to_bytes(8)
                os._exit(0)
            [program, *words], environment, is_apart = json.loads(said)
            if is_apart:
                os.setsid()
            become(program, words, environment, streams, own)
            return str(program)
        os.waitpid(between, 0)  # the process is an orphan now, and its test has adopted it
        for each in streams:
            os.close(each)
        asked.send(b"%d" % int.from_bytes(forked[:]))


def changing() -> list[Own]:
    """Returns what modules have that a forked process must have anew: random numbers and faults."""
    return [
        (module, name, value)
        for module in list(sys.modules.values())
        for name, value in vars(module).items()
        if value is faults.reach or type(value) is random.Random
    ]


def become(
    program: str,
    words: Sequence[str],
    environment: Mapping[str, str],
    streams: Sequence[int],
    own: Iterable[Own],
) -> None:
    """Gives this process what a new one is given at its start."""
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.pycache_prefix = environment.get(BYTECODE[0])
    sys.dont_write_bytecode = bool(environment.get(BYTECODE[1]))
    for each in streams[STREAMS:]:
        if ctypes.CDLL(None).setns(each, NEWNET):
            raise OSError("cannot enter the network of the test")
    for number, each in enumerate(streams):
        if number < STREAMS:
            os.dup2(each, number)
        os.close(each)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        old = getattr(sys, name)
        size = 1 if name == "stderr" else -1
        stream = open(number, mode, size, old.encoding, old.errors, closefd=False)  # noqa: SIM115  to its end
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv[1:] = words
    sys.orig_argv[1:] = [*PYTHON[1:], program, *words]
    wish = os.environ.get(faults.VARIABLE)
    reach = faults._striking(wish) if wish else faults.reach
    for module, name, value in own:
        if isinstance(value, random.Random):
            value.seed()
        else:
            setattr(module, name, reach)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv.pop(1))) as opened:
        named = serve(opened)
    runpy.run_module(named, run_name="__main__", alter_sys=True)
