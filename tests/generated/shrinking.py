"""A program that fails is made smaller: operations are left out, and parts of them, for as long as it fails
alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def kind_of(said: str) -> str:
    """Returns what two failures have in common that are alike: the first words, without values."""
    return re.sub(r"[0-9]+|[({\[].*", "", said.partition(": ")[2])[:40]


def check(
    seeds: Iterable[int],
    draw: Callable[[int], tuple[T, ...]],
    fails: Callable[[tuple[T, ...]], str | None],
    less: Callable[[T], Iterator[T]],
) -> None:
    """Raises ``AssertionError`` with what is left of the first program that fails."""
    for seed in seeds:
        if said := remains(draw(seed), fails, less):
            raise AssertionError("\n".join([f"seed {seed}", *said]))


def remains(
    program: tuple[T, ...],
    fails: Callable[[tuple[T, ...]], str | None],
    less: Callable[[T], Iterator[T]],
) -> list[str]:
    """Returns how a program fails, and the operations that are left of it; nothing if it does not."""
    said = fails(program)
    if said is None:
        return []
    smaller = shrunk(program, fails, less)
    return [fails(smaller) or f"not each time: {said}", *map(repr, smaller)]


def shrunk(
    program: tuple[T, ...],
    fails: Callable[[tuple[T, ...]], str | None],
    less: Callable[[T], Iterator[T]],
    tries: int = 400,
) -> tuple[T, ...]:
    """Returns a program that fails alike, from which nothing can be left out, or as small as was found.

    ``less`` yields an operation without one of its parts.
    """
    said = fails(program)
    if said is None:  # it depends on what else there was
        return program
    kind, smaller = kind_of(said), True
    while smaller and tries > 0:
        smaller = False
        for each in _smaller(program, less):
            tries -= 1
            if (found := fails(each)) is not None and kind_of(found) == kind:
                program, smaller = each, True
                break
            if tries <= 0:
                break
    return program


def _smaller(program: tuple[T, ...], less: Callable[[T], Iterator[T]]) -> Iterator[tuple[T, ...]]:
    size = len(program) // 2
    while size:
        for at in range(0, len(program), size):
            yield program[:at] + program[at + size :]
        size //= 2
    for at, each in enumerate(program):
        for part in less(each):
            yield (*program[:at], part, *program[at + 1 :])
