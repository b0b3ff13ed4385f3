"""Offsets: how far has a query come, and which rows lie between two of them?

Spark keeps a query's place as JSON text, compares it as text, and hands the same two texts back after a
crash.  All the arithmetic on it is here, without Spark and without a connection: where a stream begins,
how far the next batch may go, what a batch must read, and when data was lost.

An offset says that everything up to ``epoch`` of the dataspace ``space`` has been read.  Spark does not
keep where the *first* batch began, and asks again after a crash, when "the latest" means something else.
So the end of the first batch carries its beginning, as ``origin``, and ``span`` believes that rather than
the start that Spark passes.  The same holds for a batch that begins anew after a loss.

Always: the same offset is the same text; a batch is whole epochs, after its start and up to its end;
``span`` depends on the texts alone, so a batch read again is the same batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from dataspace.errors import DataspaceError, UsageError
from dataspace.wire.observing import NUMBERS
from index.patterns.text import unparse_pattern
from relay.spark.common.parsing import Numbered
from relay.spark.common.schema import parsed

if TYPE_CHECKING:
    from dataspace.client.bulk.frontiers import LogFrontier

Json: TypeAlias = dict[str, object]

LEAST: Final = 16
"""Epochs for which a partition of their own is worth a task."""

log: Final = logging.getLogger("dataspace.spark")


class DataLoss(DataspaceError):
    """Epochs that a query was still to read are gone, or the dataspace is another one."""


@dataclass(frozen=True, slots=True)
class OffsetOrigin:
    """Where reading begins: with the state at ``epoch`` (a snapshot), or with the first change after it.

    Of a state that is read in parts, rows with numbers below ``low`` have been read.
    """

    kind: Literal["snapshot", "after"]
    epoch: int
    low: int = 0


@dataclass(frozen=True, slots=True)
class Offset:
    """Everything up to ``epoch`` has been read; ``origin`` is where reading began, while that is news.

    ``erased`` is the time of the newest erasure that the query knows, 0 for none.
    """

    epoch: int
    space: str
    origin: OffsetOrigin | None = None
    erased: int = 0

    def json(self) -> Json:
        """The form that Spark keeps; the order of its keys never varies.

        >>> Offset(7, "s", OffsetOrigin("snapshot", 5)).json()
        {'epoch': 7, 'space': 's', 'from': {'snapshot': 5}}
        """
        form: Json = {"epoch": self.epoch, "space": self.space}
        if self.origin is not None:
            part = {"low": self.origin.low} if self.origin.low else {}
            form["from"] = {self.origin.kind: self.origin.epoch, **part}
        if self.erased:
            form["erased"] = self.erased
        return form

    @property
    def pending(self) -> OffsetOrigin | None:
        """The origin, as long as nothing has been read from it."""
        match self.origin:
            case OffsetOrigin("snapshot", at) if self.epoch < at:
                return self.origin
            case OffsetOrigin("after", at) if self.epoch == at:
                return self.origin
        return None

    @property
    def reached(self) -> int:
        """The epoch that the next batch goes on from."""
        return self.epoch if self.pending is None else self.pending.epoch


@dataclass(frozen=True, slots=True)
class Span:
    """The range of one batch: the state at ``as_of``, if any, then the epochs in ``(after, upto]``.

    With a ``share``, only that part of the state: rows with numbers from the first on and below the second.
    """

    after: int
    upto: int
    as_of: int | None = None
    share: tuple[int, int] | None = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read."""
        return self.as_of is None and self.after >= self.upto


def offset(form: Json) -> Offset:
    """The offset that a text from a checkpoint means; ``DataLoss`` if it is none of ours."""
    erased = form.get("erased")
    if isinstance(erased, int):
        return replace(offset({name: each for name, each in form.items() if name != "erased"}), erased=erased)
    match form:
        case {"epoch": int(epoch), "space": str(space), "from": {"snapshot": int(at), "low": int(low)}}:
            return Offset(epoch, space, OffsetOrigin("snapshot", at, low))
        case {"epoch": int(epoch), "space": str(space), "from": {"snapshot": int(at)}}:
            return Offset(epoch, space, OffsetOrigin("snapshot", at))
        case {"epoch": int(epoch), "space": str(space), "from": {"after": int(at)}}:
            return Offset(epoch, space, OffsetOrigin("after", at))
        case {"epoch": int(epoch), "space": str(space)} if "from" not in form:
            return Offset(epoch, space)
    raise DataLoss(f"the checkpoint holds {form!r}, which is no offset of a dataspace")


def beginning(start: Numbered, now: LogFrontier, *, fail: bool = True) -> Offset:
    """Returns where a new stream stands before its first batch.

    A starting epoch that is no longer retained raises ``DataLoss``; with ``fail=False`` it is logged, and the
    stream begins with the oldest epoch that is.  Raises ``UsageError`` for an epoch that has not come yet.
    """
    match start:
        case "snapshot" if now.epoch > 0:
            return Offset(0, now.space, OffsetOrigin("snapshot", now.epoch))
        case "snapshot" | "latest":
            return _after(now.epoch, now.space)
        case "earliest":
            return _after(now.oldest - 1, now.space)
        case int():
            return _numbered(max(start, 1), now, fail=fail)


def beginning_after(epoch: int, now: LogFrontier) -> Offset:
    """Where a stream stands that begins with what follows an epoch."""
    return _after(epoch, now.space)


def _after(epoch: int, space: str) -> Offset:
    epoch = max(epoch, 0)
    return Offset(epoch, space, OffsetOrigin("after", epoch))


def _numbered(start: int, now: LogFrontier, *, fail: bool) -> Offset:
    if start < now.oldest:
        tolerate(f"startingEpoch {start} is gone, the oldest epoch retained is {now.oldest}", fail=fail)
        start = now.oldest
    if start > now.epoch + 1:
        raise UsageError(f"startingEpoch {start} has not come yet, the newest epoch is {now.epoch}")
    return _after(start - 1, now.space)


def following(here: Offset, now: LogFrontier, limit: int | None) -> Offset:
    """The end of the batch that begins ``here``: as far as the frontier, within ``limit`` epochs.

    It equals ``here`` when there is nothing to read.  The caller has asked ``lost`` before.
    """
    begin, origin = here.reached, here.pending
    end = now.epoch if limit is None else min(now.epoch, further(begin, limit, now.gaps))
    if end <= begin and (origin is None or origin.kind == "after"):
        return here
    return replace(here, epoch=end, origin=origin)


def within_state(here: Offset, high: int) -> Offset:
    """The end of the batch that has the rows of a pending state up to a number, ``NUMBERS`` for all."""
    assert here.pending is not None  # as the caller has seen
    at = here.pending.epoch
    if high >= NUMBERS:
        return replace(here, epoch=at, origin=OffsetOrigin("snapshot", at))
    return replace(here, origin=OffsetOrigin("snapshot", at, high))


def further(epoch: int, count: int, gaps: Sequence[tuple[int, int]]) -> int:
    """The number of the epoch that comes ``count`` epochs after another.

    A gap is the two epochs on its sides: a crash takes numbers that were reserved and not used, 65 536 of
    them, and a batch of two epochs must not take half as many batches to cross it.

    >>> further(4, 2, [(5, 65_541)])
    65541
    """
    for before, first in gaps:
        if epoch + count <= before:
            break
        if epoch < first:
            count -= max(0, before - epoch)
            epoch = first - 1
    return epoch + count


def lost(here: Offset, now: LogFrontier) -> str | None:
    """What of the epochs after ``here`` can no longer be read, in a sentence, or None."""
    return missing(Span(here.reached, here.reached), here.space, now)


def missing(span: Span, space: str, now: LogFrontier) -> str | None:
    """What of a span of some space can no longer be read, in a sentence, or None."""
    if space != now.space:
        return f"the dataspace is not the one that was read before: it is {now.space}, it was {space}"
    if span.upto > now.epoch:
        return f"epoch {span.upto} was on disk before, and now the newest is {now.epoch}"
    if span.after < now.oldest - 1:
        if span.as_of is not None:
            there = f"the oldest that can be read is that at epoch {now.oldest - 1}"
            return f"the state at epoch {span.as_of} is gone, {there}"
        return f"epochs {span.after + 1} to {now.oldest - 1} are gone, the oldest retained is {now.oldest}"
    return None


def state_at(as_of: Literal["latest"] | int, now: LogFrontier) -> Span:
    """Returns the span that is the state at one epoch and nothing else.

    Raises ``UsageError`` for an epoch that has not come yet, and ``DataLoss`` if the log no longer has the
    state of the epoch: no other state may stand in for it, so ``failOnDataLoss`` has no effect here.
    """
    at = now.epoch if as_of == "latest" else as_of
    if at > now.epoch:
        raise UsageError(f"asOfEpoch {at} has not come yet, the newest epoch is {now.epoch}")
    if 0 < at < now.oldest - 1:
        raise DataLoss(
            f"asOfEpoch {at} is gone, the oldest state that can be read is that at epoch {now.oldest - 1}: "
            f"ask for an epoch from there on, or for the latest"
        )
    return Span(at, at, as_of=at or None)


def tolerate(loss: str, *, fail: bool) -> None:
    """Logs a loss, or raises ``DataLoss`` where it is to fail the query."""
    if fail:
        raise DataLoss(f"{loss} (failOnDataLoss=false goes on with what there is)")
    log.warning("%s; going on with what there is, as failOnDataLoss=false asks", loss)


def anew(here: Offset, now: LogFrontier) -> Offset:
    """Where a query goes on that accepts a loss: with the oldest change there is that it has not read."""
    if here.space == now.space and here.reached > now.epoch:
        return replace(_after(now.epoch, now.space), erased=here.erased)
    return replace(_after(now.oldest - 1, now.space), erased=here.erased)


def span(start: Offset, end: Offset) -> Span:
    """What the batch between two offsets reads; the end's own origin goes before the start.

    An offset that stays, while the offsets of other daemons move on, keeps an origin that has been read from.
    """
    if start == end:
        return Span(end.epoch, end.epoch)
    origin = end.origin or start.pending
    if origin is None:
        return Span(after=start.epoch, upto=end.epoch)
    if origin.kind == "after":
        return Span(after=origin.epoch, upto=end.epoch)
    at, begun = origin.epoch, start.pending
    low = begun.low if begun is not None and begun.kind == "snapshot" and begun.epoch == at else 0
    if end.pending is not None:
        return Span(at, at, as_of=at, share=(low, origin.low))
    return Span(at, end.epoch, as_of=at, share=(low, NUMBERS) if low else None)


def divided(span: Span, count: int, gaps: Sequence[tuple[int, int]]) -> list[Span]:
    """A span in up to ``count`` pieces of about as many epochs each, in order; a state is in the first.

    >>> [(each.after, each.upto) for each in divided(Span(0, 40), 2, ())]
    [(0, 20), (20, 40)]
    """
    inside = [gap for gap in gaps if span.after <= gap[0] and gap[1] <= span.upto]
    skipped = sum([first - before - 1 for before, first in inside])
    size = max(LEAST, -(-(span.upto - span.after - skipped) // count))
    pieces: list[Span] = []
    after, state = span.after, (span.as_of, span.share)
    while len(pieces) < count - 1 and (end := further(after, size, gaps)) < span.upto:
        pieces.append(Span(after, end, *state))
        after, state = end, (None, None)
    return [*pieces, Span(after, span.upto, *state)]


def remaining(span: Span, space: str, now: LogFrontier) -> Span | None:
    """Returns the part of a span that is still there to be read, or None; for readers that accept a loss."""
    after = max(span.after, now.oldest - 1)
    upto = min(span.upto, now.epoch)
    as_of = None if span.as_of is None else after
    left = Span(after, upto, as_of, span.share)
    return None if space != now.space or after > upto or left.empty else left


PATTERN: Final = "pattern"
SPACES: Final = "spaces"


def place(offsets: Sequence[Offset], pattern: str, names: Sequence[str] = ()) -> Json:
    """The text, as Spark turns it into one; ``names`` are of spaces, where several are read.

    >>> place([Offset(7, "s")], "p( $x )")
    {'epoch': 7, 'space': 's', 'pattern': 'p($x)'}
    """
    pattern_text = unparse_pattern(parsed(pattern))
    if names:
        by_name = sorted(zip(names, offsets, strict=True), key=lambda pair: pair[0])
        return {SPACES: {name: each.json() for name, each in by_name}, PATTERN: pattern_text}
    if len(offsets) == 1:
        return {**offsets[0].json(), PATTERN: pattern_text}
    return {"daemons": [each.json() for each in offsets], PATTERN: pattern_text}


def offsets_of(
    form: Json, urls: Sequence[str], pattern: str, identities: Callable[[], Sequence[str]]
) -> Sequence[Offset | None]:
    """The offsets that a text from a checkpoint means; None for a daemon that the query has not read yet.

    Where there are more daemons than in the text, each is found by the identity of its space, for which
    ``identities`` asks them.  Raises ``UsageError`` for the checkpoint of another pattern or of a daemon that
    is not read any more, and ``DataLoss`` for a text that is none of ours.
    """
    kept = _kept(form, pattern)
    if SPACES in kept:
        raise UsageError(
            "the checkpoint is of option spaces, which the query has not: give it a checkpoint of its own"
        )
    several = kept.get("daemons", [kept])
    if not isinstance(several, list):
        raise DataLoss(f"the checkpoint holds {form!r}, which is no offset of a dataspace")
    known = [offset(each) for each in several]
    if len(known) == len(urls):
        return known
    if len(known) < len(urls):
        by_space = {each.space: each for each in known}
        found = [by_space.get(space) for space in identities()]
        if {each.space for each in found if each is not None} == by_space.keys():
            return found
    raise UsageError(
        f"the checkpoint is of {len(known)} daemons, url names {len(urls)}, and not all of those: "
        f"{', '.join(urls)}"
    )


def offsets_by_name(form: Json, names: Sequence[str], pattern: str) -> list[Offset | None]:
    """The offsets of spaces; None for a space that the query has not read yet.

    Raises as ``offsets_of``, and ``UsageError`` for the checkpoint of a space that is not read any more: its
    place would be lost.
    """
    found = _kept(form, pattern).get(SPACES)
    if not isinstance(found, dict):
        raise UsageError(
            "the checkpoint is of a query without option spaces: give this query a checkpoint of its own"
        )
    gone = sorted(found.keys() - set(names))
    if gone:
        raise UsageError(
            f"the checkpoint is of space {gone[0]} too, and option spaces finds {', '.join(names)}: "
            f"name it as well, or give the query a checkpoint of its own"
        )
    return [offset(found[name]) if name in found else None for name in names]


def _kept(form: Json, pattern: str) -> Json:
    """What a text says beside its pattern, which must be this one."""
    kept = {name: value for name, value in form.items() if name != PATTERN}
    before, now = form.get(PATTERN), unparse_pattern(parsed(pattern))
    if before != now:
        raise UsageError(
            f"the checkpoint is of the pattern {before}, the query asks for {now}: "
            f"give it a checkpoint of its own"
        )
    return kept
