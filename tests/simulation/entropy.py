"""Entropy: clocks, random bytes and the number of the process of the present host, in place of the real ones.

Product code takes the time from ``time`` and random numbers from ``os``, ``random`` and ``uuid``; some of it
has imported the functions by name, or has them as the default of a parameter.  All these places are found
once, and lead elsewhere while a life runs.

Always: after the block everything is as it was.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, Final

import trio

from tests.simulation.hosts import here

BEGAN: Final = 1_800_000_000.0
"""What the clocks show at the beginning of a life, in seconds since 1970."""

STEP: Final = 0.000_02
"""Seconds of the processor that pass between two looks at the clock, on average."""

TICK: Final = 1e-9
"""Seconds between two looks at the clock that is not the processor's: one who waits for it must not wait for
ever."""

MACHINE: Final = "machine"
"""The name of all machines."""

_PRODUCT: Final = ("index", "dataspace", "relay", "server")
_REAL_RANDOM: Final = random.Random(0)
_REAL_PROCESS: Final = os.getpid()


def _true_time() -> float:
    try:
        return float(trio.current_time())
    except RuntimeError:  # in a callback outside of all tasks
        return 0.0


def _wall() -> float:
    host = here()
    return BEGAN + _true_time() + (0.0 if host is None else host.offset)


def _wall_ns() -> int:
    return round(_wall() * 1e6) * 1000


def _steady() -> float:
    """The time since some moment, in which the processor's own work counts, by chance."""
    host = here()
    if host is None:
        return _true_time()
    host.used += host.random.random() * 2 * STEP
    return _true_time() + host.used


def _steady_ns() -> int:
    return round(_steady() * 1e9)


def _source() -> random.Random:
    host = here()
    return _REAL_RANDOM if host is None else host.random


def _urandom(size: int) -> bytes:
    return _source().randbytes(size)


def _getpid() -> int:
    host = here()
    return _REAL_PROCESS if host is None else host.process


def _random() -> float:
    return _source().random()


def _getrandbits(bits: int) -> int:
    return _source().getrandbits(bits)


def _randrange(*args: int) -> int:
    return _source().randrange(*args)


def _uniform(low: float, high: float) -> float:
    return _source().uniform(low, high)


def _sample(population: Sequence[Any], k: int) -> list[Any]:
    return _source().sample(population, k)


def _clock_gettime(_clock: int) -> float:
    host = here()
    if host is None:
        return _true_time()
    host.looks += 1
    return _true_time() * host.rate + host.looks * TICK


_REPLACED: Final[list[tuple[ModuleType, str, Callable[..., Any]]]] = [
    (time, "time", _wall),
    (time, "time_ns", _wall_ns),
    (time, "monotonic", _steady),
    (time, "monotonic_ns", _steady_ns),
    (time, "perf_counter", _steady),
    (time, "perf_counter_ns", _steady_ns),
    (time, "clock_gettime", _clock_gettime),
    (os, "urandom", _urandom),
    (os, "getpid", _getpid),
    (socket, "gethostname", lambda: MACHINE),
    (random, "_urandom", _urandom),
    (random, "random", _random),
    (random, "getrandbits", _getrandbits),
    (random, "randrange", _randrange),
    (random, "uniform", _uniform),
    (random, "sample", _sample),
]

_places: list[tuple[Any, str, object, object]] = []
_searched: list[ModuleType] = []
"""Where they were looked for."""


def product_modules() -> list[ModuleType]:
    """Returns the modules of the product, as far as they are imported."""
    return [module for name, module in sorted(sys.modules.items()) if name.split(".")[0] in _PRODUCT]


def _find_places() -> list[tuple[Any, str, object, object]]:
    """Returns where the real functions are: an object, a name or key, the real one and the other one."""
    others = {id(getattr(module, name)): other for module, name, other in _REPLACED}
    found: list[tuple[Any, str, object, object]] = [
        (module, name, getattr(module, name), other) for module, name, other in _REPLACED
    ]
    for module in product_modules():
        module_name = module.__name__
        for name, value in sorted(vars(module).items()):
            if id(value) in others:
                found.append((module, name, value, others[id(value)]))
            found += _defaults(value, module_name, others)
    return found


def _defaults(
    value: object, module: str, others: dict[int, Callable[..., Any]]
) -> Iterator[tuple[Any, str, object, object]]:
    functions = list(vars(value).values()) if isinstance(value, type) else [value]
    for function in functions:
        if isinstance(function, FunctionType) and function.__module__ == module:
            defaults = function.__defaults__ or ()
            if any(id(each) in others for each in defaults):
                changed = tuple([others.get(id(each), each) for each in defaults])
                yield function, "__defaults__", defaults, changed
            keywords = function.__kwdefaults__ or {}
            if any(id(each) in others for each in keywords.values()):
                replaced = {name: others.get(id(each), each) for name, each in keywords.items()}
                yield function, "__kwdefaults__", keywords, replaced


@contextmanager
def virtual() -> Iterator[None]:
    """Has product code read the clock, and take random bytes, of the host that its task is on."""
    if _searched != product_modules():
        _searched[:], _places[:] = product_modules(), _find_places()
    for owner, name, _, other in _places:
        setattr(owner, name, other)
    try:
        yield
    finally:
        for owner, name, real, _ in _places:
            setattr(owner, name, real)
