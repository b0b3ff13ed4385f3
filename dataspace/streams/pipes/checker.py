"""A checker: stands in for any stage and watches what passes its downstream side.

Wrapped around a stage it has the same shape and changes nothing, except that a breach of the protocol
raises ``Violation`` where it happens and is kept in ``violations``.  Around each stage of a pipe
(``pipe(…, checked=True)``) it sees every interface: what a stage answers, and what the next one asks of it.

The rules, after the checker of the pull-stream papers, with ours for peeking and withdrawn requests:

    1  no request for a value after the end, by a stage of ours (``calm``; a user may ask, and is answered)
    2  every request is answered in the end, or withdrawn by its own cancellation      (``check_over``)
    3  answers come in the order of the requests, values, marks and errors alike
    4  no value after an end, that of an abort that was sent included
    5  the end stays what it was: of the stream, or for one reason; a bare error comes once
    6  a read of some gives at least one value and at most as many as asked for
    7  peeking does not raise, and promises nothing once an end was answered
    8  upstream is not aborted twice, but may be indicated what was cut short          (``calm``)

Always: the wrapped stage sees the same calls in the same order as without it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

from dataspace.streams.stages.base import frames_of
from dataspace.streams.stages.protocol import VERSION, Aborted, AnyStage, EndOfStream, Mark, Reason, Upstream


class Violation(AssertionError):
    """The protocol of streams was broken; the message names the stage and the rule."""


@dataclass(frozen=True, slots=True)
class CheckerStatistics:
    """Counts of the values and marks that passed one interface."""

    requests: int
    values: int
    withdrawn: int
    unanswered: int
    indications: int


class Checker:
    """Wraps one stage and checks its calls."""

    promistream_version: Final = VERSION

    def __init__(self, stage: AnyStage, *, calm: bool = False, eager: bool = True) -> None:
        self.stage: Final = stage
        self.violations: Final[list[str]] = []
        self._calm = calm
        self._eager = eager
        self._requests = self._values = self._withdrawn = self._indications = 0
        self._open: dict[int, str] = {}
        self._overtaken: dict[int, int] = {}
        """Open requests that a later one, the value, has overtaken with its answer."""
        self._answered_end: str | None = None
        self._asked_end = False
        self._cut_short = False
        self._bare: BaseException | None = None

    def __getattr__(self, name: str) -> Any:
        """Returns the other attributes of the stage: its kind, its need of tasks."""
        if name in ("stage", "steps"):
            raise AttributeError(name)
        return getattr(self.stage, name)

    @property
    def frames(self) -> int:
        """The depth of Python's stack: the stage's, and the checker's own."""
        return frames_of(self.stage) + 3

    @property
    def description(self) -> str:
        return self.stage.description

    def __repr__(self) -> str:
        return f"<checked {self.stage!r}>"

    def statistics(self) -> CheckerStatistics:
        """Returns counts, in O(1)."""
        return CheckerStatistics(
            self._requests, self._values, self._withdrawn, len(self._open), self._indications
        )

    # -- the protocol ---------------------------------------------------------------------------------

    async def read(self, source: Upstream[Any]) -> Any:
        number = self._ask("read")
        value = await self._answer(number, self.stage.read(source))
        self._value(number, 1)
        return value

    async def read_some(self, limit: int, source: Upstream[Any]) -> list[Any]:
        some = getattr(self.stage, "read_some", None)
        if some is None:
            return [await self.read(source)]
        number = self._ask("read_some")
        values: list[Any] = await self._answer(number, some(limit, source=source))
        if not 1 <= len(values) <= limit:
            self._breach(6, f"request {number} for up to {limit} values gave {len(values)}")
        self._value(number, len(values))
        return values

    async def peek(self, source: Upstream[Any]) -> bool:
        try:
            promised = await self.stage.peek(source)
        except Exception as error:
            self._breach(7, f"peek raised {error!r}")
            raise
        if promised and self._answered_end is not None:
            self._breach(7, f"peek promised a value after {self._answered_end}")
        return promised

    async def abort(self, reason: Reason, source: Upstream[Any]) -> None:
        number = self._ask_end()
        try:
            await self._answer(number, self.stage.abort(reason, source))
        except Exception:
            raise
        except BaseException:
            self._cut_short = True
            raise
        self._close(number)

    def abort_nowait(self, reason: Reason, source: Upstream[Any]) -> None:
        if self._calm and self._asked_end and not self._cut_short:
            self._breach(8, "a second end was indicated")
        self._cut_short = False
        self._asked_end = True
        self._indications += 1
        self.stage.abort_nowait(reason, source)

    def check_over(self) -> None:
        """Raises ``Violation`` if a request has not been answered; to be called when all is done."""
        if self._open:
            waiting = ", ".join(f"{kind} {number}" for number, kind in self._open.items())
            self._breach(2, f"without an answer: {waiting}")

    # -- what is watched ------------------------------------------------------------------------------

    def _ask(self, kind: str) -> int:
        if self._calm and (self._asked_end or self._answered_end):
            self._breach(1, f"{kind} after the end ({self._answered_end or 'an abort'})")
        return self._open_request(kind)

    def _ask_end(self) -> int:
        if self._calm and self._asked_end:
            self._breach(8, "a second abort")
        number = self._open_request("abort")
        self._asked_end = True
        return number

    def _open_request(self, kind: str) -> int:
        self._requests += 1
        self._open[self._requests] = kind
        return self._requests

    async def _answer(self, number: int, answering: Coroutine[Any, Any, Any]) -> Any:
        """Waits for the answer of a request, and checks it if it is no value."""
        try:
            return await answering
        except Exception as error:
            self._raised(number, error)
            raise
        except BaseException:
            self._open.pop(number, None)
            self._overtaken.pop(number, None)
            self._withdrawn += 1
            raise

    def _close(self, number: int) -> str:
        for before in self._open:
            if before >= number:
                break
            self._overtaken[before] = number  # a breach if it is answered, and none if it is being withdrawn
        after = self._overtaken.pop(number, None)
        if after is not None:
            self._breach(3, f"request {after} was answered before request {number}")
        return self._open.pop(number, "?")

    def _value(self, number: int, count: int) -> None:
        self._close(number)
        self._values += count
        if self._asked_end or self._answered_end:
            self._breach(4, f"request {number} got a value after {self._answered_end or 'an abort'}")

    def _raised(self, number: int, error: Exception) -> None:
        kind = self._close(number)
        if kind == "abort":
            return  # a teardown that failed: the stream has ended all the same
        if isinstance(error, EndOfStream):
            self._note_end(number, "the end of the stream")
        elif isinstance(error, Aborted):
            self._note_end(number, f"an abort for {error.reason!r}")
        elif isinstance(error, Mark):
            self._breach(5, f"request {number} got a mark of no known kind: {error!r}")
        else:
            self._note_error(number, error)

    def _note_error(self, number: int, error: Exception) -> None:
        if self._bare is error:
            self._breach(5, f"request {number} got the bare error again: {error!r}")
        self._bare = error
        self._note_end(number, f"an abort for {error!r}")

    def _note_end(self, number: int, end: str) -> None:
        if self._answered_end not in (None, end):
            self._breach(5, f"request {number} got {end} after {self._answered_end}")
        self._answered_end = end

    def _breach(self, rule: int, what: str) -> None:
        text = f"{self.stage.description}: rule {rule}: {what}"
        self.violations.append(text)
        if self._eager:
            raise Violation(text)


def check(stage: AnyStage, *, calm: bool = False, eager: bool = True) -> Checker:
    """Returns a stage wrapped in a checker.

    ``calm`` applies the rules for stages of this package to its reader; without ``eager`` breaches are only
    collected in ``violations``.
    """
    return Checker(stage, calm=calm, eager=eager)
