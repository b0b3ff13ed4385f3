"""Machines with a network between them, whose lines are cut without a word: namespaces of Linux.

Each pair of machines has a line of its own.  A cut line sends all packets to a hardware address that no
machine has, so that they are lost: no end learns of it but by silence.  A thread, and each process that it
starts, is on one machine at a time.

Always: nothing outside of the namespaces changes; they end with the process that has made them.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Final, TypeVar

from trio._core import _thread_cache

T = TypeVar("T")

NOBODYS: Final = "02:00:00:00:00:fe"
"""A hardware address that no machine has."""

NEWNET: Final = 0x40000000
"""``CLONE_NEWNET``."""


def refusal() -> str:
    """Returns why there can be no namespaces here; empty if there can."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return "no `ip` or no `unshare`, with which networks are cut"
    made = subprocess.run(
        ["unshare", "-n", "ip", "link", "add", "line0", "type", "veth", "peer", "name", "line1"],
        capture_output=True,
    )
    return "" if made.returncode == 0 else "no right to make network namespaces"


class Network:
    """Machines by name, each with an address, and a line between any two of them."""

    def __init__(self, *names: str) -> None:
        self.hosts: Final = {name: f"10.213.0.{number}" for number, name in enumerate(names, 1)}
        """The address of each machine."""
        self._machines = {name: _begun() for name in names}
        for name, machine in self._machines.items():
            _configure(machine, ["link set lo up", f"address add {self.hosts[name]}/32 dev lo"])
        for one, other in combinations(names, 2):
            ends = self._line(one, other), self._line(other, one)
            pid = self._machines[other].pid
            _configure(self._machines[one], [f"link add {ends[0]} type veth peer name {ends[1]} netns {pid}"])
            for here, end, there in ((one, ends[0], other), (other, ends[1], one)):
                to = f"{self.hosts[there]}/32 dev {end} src {self.hosts[here]}"
                _configure(self._machines[here], [f"link set {end} up", f"route add {to}"])

    def _line(self, here: str, there: str) -> str:
        """Returns the name of a line at one of its ends."""
        numbers = list(self.hosts)
        return f"line{numbers.index(here)}-{numbers.index(there)}"

    def cut(self, one: str, *others: str, back: bool = True) -> None:
        """Cuts the lines between a machine and others; only what it is sent is lost if not ``back``."""
        for other in others:
            for here, there in ((other, one), (one, other))[: 1 + back]:
                end = self._line(here, there)
                to = f"{self.hosts[there]} lladdr {NOBODYS} dev {end} nud permanent"
                _configure(self._machines[here], [f"neighbour replace {to}"])

    def mend(self, one: str, *others: str) -> None:
        """Mends the lines between a machine and others, each of which was cut in some direction."""
        for other in others:
            for here, there in ((other, one), (one, other)):
                _configure(
                    self._machines[here],
                    [f"neighbour flush to {self.hosts[there]} nud permanent dev {self._line(here, there)}"],
                )

    @contextmanager
    def at(self, name: str) -> Iterator[None]:
        """Has the present thread, and what it starts, on a machine for as long as the block lasts.

        Threads stay where they were started, and trio keeps its threads for later work.  So the block has
        threads of its own: else a later test might be carried out on this machine.
        """
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            with open(f"/proc/{self._machines[name].pid}/ns/net") as machine:
                _enter(machine.fileno())
            kept, _thread_cache.THREAD_CACHE = _thread_cache.THREAD_CACHE, _thread_cache.ThreadCache()
            try:
                yield
            finally:
                _thread_cache.THREAD_CACHE = kept
                _enter(before)
        finally:
            os.close(before)

    def run(self, name: str, function: Callable[[], T]) -> T:
        """Calls a function on a machine."""
        with self.at(name):
            return function()

    def end(self) -> None:
        """Ends the machines; what still runs there has no lines any more."""
        for each in self._machines.values():
            each.communicate()


def _begun() -> subprocess.Popen[str]:
    """Returns a process that holds a namespace until its input ends."""
    holder = ["unshare", "-n", "sh", "-c", "echo begun; exec cat"]
    process = subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None  # a pipe, as asked for
    assert process.stdout.readline() == "begun\n"
    return process


def _configure(machine: subprocess.Popen[str], commands: Sequence[str]) -> None:
    subprocess.run(
        ["nsenter", "-t", str(machine.pid), "-n", "ip", "-batch", "-"],
        input="\n".join(commands),
        text=True,
        check=True,
    )


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
