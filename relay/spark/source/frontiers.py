"""How far several daemons are, asked at the same time.

Asked in turn, a daemon that is slow or away holds up the news of all others, once for each question.  So each
is asked on a thread of its own, and a question that is still open is not asked again: its daemon is taken to
be where it was last, and the others go on.

Always: a daemon that has never answered is waited for; a daemon whose question failed fails the next caller;
a watch that is pickled leaves its questions behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from threading import Thread
from typing import Final, Generic, TypeVar

T = TypeVar("T")
F = TypeVar("F")

_MARGIN: Final = 0.05
"""Seconds that an answer may come late: a daemon that has waited as long as it was asked to still answers."""


class FrontierWatch(Generic[F]):
    """Keeps the frontiers of ``count`` daemons, and asks several daemons at the same time.

    ``ask(at, after, timeout)`` returns how far one is, once that is beyond ``after`` or the time is over.
    """

    def __init__(self, count: int, ask: Callable[[int, int | None, float], F]) -> None:
        self._ask: Final = ask
        self._count: Final = count
        self._known: dict[int, F] = {}
        self._open: dict[int, Future[F]] = {}

    def now(self) -> list[F]:
        """Returns the frontiers of all; takes as long as the slowest daemon, and raises the error of a
        daemon."""
        return together([partial(self._ask, at, None, 0.0) for at in range(self._count)])

    def beyond(self, after: Sequence[int], is_news: Callable[[int, F], bool], timeout: float) -> list[F]:
        """How far all are known to be, as soon as one is news or the seconds are over."""
        if self._count == 1:
            return [self._ask(0, after[0], timeout)]
        end = time.monotonic() + timeout + _MARGIN
        for at in range(self._count):
            if at not in self._open:
                self._open[at] = _started(partial(self._ask, at, after[at], timeout))
        while self._open:
            complete = len(self._known) == self._count
            if complete and any(is_news(at, told) for at, told in self._known.items()):
                break
            left = max(0.0, end - time.monotonic()) if complete else None
            if not wait(self._open.values(), left, FIRST_COMPLETED).done:
                break
            self._take_answers()
        return [self._known[at] for at in range(self._count)]

    def _take_answers(self) -> None:
        for at in [at for at, question in self._open.items() if question.done()]:
            self._known[at] = self._open.pop(at).result()

    def __reduce__(self) -> tuple[object, ...]:
        return FrontierWatch, (self._count, self._ask)


def together(questions: Sequence[Callable[[], T]]) -> list[T]:
    """The answers to some questions asked at the same time; raises the first error in their order."""
    if not questions:
        return []
    first, *others = questions
    running = [_started(each) for each in others]
    return [first(), *[each.result() for each in running]]


def _started(question: Callable[[], T]) -> Future[T]:
    """Asks on a thread that does not outlive the program."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(question())
        except BaseException as error:  # noqa: BLE001  # raised again where the result is asked for
            future.set_exception(error)

    Thread(target=run, name="dataspace frontier", daemon=True).start()
    return future
