"""Archives: the archived epochs of the spaces that a query reads, opened once in each process.

Where a query has the option ``archive``, epochs that a manifest names come from its objects, and later ones
from the daemon, if there is one.  The manifest is read before the daemon is asked how far it is, so that no
epoch is missing between the two; what the daemon lets go meanwhile is in a newer manifest.

Always: the archive of a daemon's space is known by the identity of its log; an object that cannot be read is
tried again for as long as ``connectTimeout`` allows.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from dataspace.client.bulk.frontiers import LogFrontier
from dataspace.errors import UsageError
from relay.archive.archive import Archive, ArchivePlace, archives_in
from relay.archive.reading import ReadArchive
from relay.objects.objects import Listed, NoSuchObject, Objects, StoreFailed, without_password
from relay.objects.opening import open_objects
from relay.spark.common.connections import DaemonPeer, RetryPatience
from relay.spark.common.frontiers import SourceFrontier

T = TypeVar("T")

log: Final = logging.getLogger("dataspace.spark")

FRESH_SECONDS: Final = 10.0
"""For how long a manifest that was read serves, unless something newer is needed."""

ALONE_SECONDS: Final = 1.0
"""The same where there is no daemon to tell of newer epochs."""


@dataclass(slots=True)
class ColdArchive:
    """One archive, open in this process.  Calls block."""

    archive: Archive
    read_at: float = 0.0
    log: ReadArchive = field(init=False)

    def __post_init__(self) -> None:
        self.log = ReadArchive(self.archive)

    @property
    def objects(self) -> Objects:
        return self.archive.objects

    def fresh(self, seconds: float = 0.0) -> ColdArchive:
        """Reads the newest manifest, unless that was done within the last ``seconds``; returns itself."""
        now = time.monotonic()
        if not self.read_at or now - self.read_at > seconds:
            self.archive.renew()
            self.read_at = now
        return self

    def upto(self, epoch: int) -> ColdArchive:
        """Reads the newest manifest if the known manifest ends before an epoch; returns itself."""
        return self if self.archive.upto >= epoch else self.fresh()

    def gaps(self, after: int) -> list[tuple[int, int]]:
        """Returns the gaps that crashes left beyond an epoch, as the log's own."""
        found = self.archive.starts()
        return [(before, first) for first, before in found if first > after and first > before + 1]


class PatientObjects:
    """Objects that are asked for again while their store is away, for ``bound`` seconds; only to be read."""

    def __init__(self, objects: Objects, bound: float) -> None:
        self._objects = objects
        self._bound = bound
        self.shown = objects.shown

    def listed(self, folder: str = "") -> dict[str, Listed]:
        return self._asked(lambda: self._objects.listed(folder))

    def folders(self, folder: str = "") -> list[str]:
        return self._asked(lambda: self._objects.folders(folder))

    def get(self, name: str) -> bytes:
        return self._asked(lambda: self._objects.get(name))

    def get_part(self, name: str, start: int, end: int) -> bytes:
        return self._asked(lambda: self._objects.get_part(name, start, end))

    def address(self, name: str) -> str:
        return self._objects.address(name)

    def put(self, name: str, content: bytes) -> None:
        raise StoreFailed(f"{self.shown} is only read here")

    def create(self, name: str, content: bytes) -> bool:
        raise StoreFailed(f"{self.shown} is only read here")

    def delete(self, names: Iterable[str]) -> None:
        raise StoreFailed(f"{self.shown} is only read here")

    def _asked(self, question: Callable[[], T]) -> T:
        patience = RetryPatience(self._bound)
        while True:
            try:
                return question()
            except NoSuchObject:
                raise
            except StoreFailed as error:
                if not patience.waits(error):
                    raise


_open: Final[dict[tuple[int, str, str, str], ColdArchive]] = {}
"""By process, prefix, space and identity."""

_looked: Final[dict[tuple[int, str, str, str], float]] = {}
"""When an archive was looked for and not found."""


def archive_of(
    peer: DaemonPeer, bound: float, identity: str = "", *, again: float = FRESH_SECONDS
) -> ColdArchive | None:
    """Returns the archive of a peer's space; None where nothing of this space was archived yet.

    ``identity`` names its log, where a daemon has told so.  A missing archive is looked for again after
    ``again`` seconds.  Raises ``UsageError`` where there is no daemon and not exactly one archive of the
    space, or where there are archives of other logs only.
    """
    key = (os.getpid(), peer.archive, peer.space, identity or peer.identity)
    if key not in _open:
        if time.monotonic() < _looked.get(key, -again) + again:
            return None
        objects = PatientObjects(open_objects(peer.archive), bound)
        place = _place(objects, peer, identity or peer.identity)
        if place is None:
            if key not in _looked:
                log.warning("nothing of space %s is archived at %s yet", peer.space, objects.shown)
            _looked[key] = time.monotonic()
            return None
        _open[key] = ColdArchive(Archive(objects, place))
    return _open[key].fresh(FRESH_SECONDS)


def planned_archive(peer: DaemonPeer, bound: float, identity: str) -> ColdArchive:
    """Returns the archive that a plan names; waits up to ``bound`` seconds for a place that is away.

    A directory that is not mounted looks like one in which nothing was archived.
    """
    patience = RetryPatience(bound)
    while True:
        try:
            found = archive_of(peer, bound, identity, again=0.0)
        except UsageError as error:
            found, gone = None, str(error)
        else:
            place = without_password(peer.archive)
            gone = f"option archive: {place} has no archive of the space {peer.space}"
        if found is not None:
            return found
        if not patience.waits(gone):
            raise StoreFailed(f"{gone} any more; waited {bound:g} s for it (connectTimeout)")


def _place(objects: Objects, peer: DaemonPeer, identity: str) -> ArchivePlace | None:
    found = archives_in(objects, peer.space)
    for each in found:
        if identity == each.identity or (not identity and len(found) == 1):
            return each
    listed = ", ".join(each.identity for each in found)
    if found and identity:
        raise UsageError(
            f"option archive: {objects.shown} has archives of other logs of the space {peer.space} "
            f"({listed}), and none of {identity}"
        )
    if found:
        raise UsageError(
            f"option archive: {objects.shown} has archives of {len(found)} logs of the space {peer.space}: "
            f"choose one with archiveIdentity: {listed}"
        )
    if not peer.url:
        there = sorted({each.space for each in archives_in(objects)})
        raise UsageError(
            f"option archive: {objects.shown} has no archive of the space {peer.space}"
            + (f"; there are {', '.join(there)}" if there else "")
        )
    return None


def archived_spaces(peer: DaemonPeer) -> list[str]:
    """Returns the names of the spaces that have archives."""
    return sorted({each.space for each in archives_in(open_objects(peer.archive))})


def archived_frontier(peer: DaemonPeer, bound: float, after: int | None, timeout: float) -> SourceFrontier:
    """How far an archive extends, where there is no daemon; waits up to ``timeout`` s for later epochs."""
    cold = archive_of(peer, bound)
    assert cold is not None  # as there is no daemon
    cold.fresh(ALONE_SECONDS)
    if after is not None and cold.archive.upto <= after and timeout > 0:
        time.sleep(timeout)
        cold.fresh(ALONE_SECONDS)
    upto = cold.archive.upto
    gaps = tuple(cold.gaps(-1 if after is None else after))
    identity = cold.archive.place.identity
    erased = cold.archive.erased_at()
    return SourceFrontier(upto, cold.archive.oldest, identity, gaps, upto + 1, upto, erased=erased)


def widened(peer: DaemonPeer, bound: float, now: LogFrontier, after: int | None) -> SourceFrontier:
    """Returns a daemon's frontier with what its archive has beside."""
    cold = archive_of(peer, bound, now.space)
    if cold is None:
        return SourceFrontier(now.epoch, now.oldest, now.space, now.gaps, now.oldest, 0, erased=now.erased)
    archive = cold.upto(now.oldest - 1).archive
    oldest, gaps = now.oldest, {*now.gaps}
    if archive.oldest < oldest <= archive.upto + 1:
        oldest = archive.oldest
        gaps |= {gap for gap in cold.gaps(-1 if after is None else after) if gap[1] <= now.oldest}
    archived = min(archive.upto, now.epoch)
    held, known = max(now.oldest, archive.erased + 1), tuple(sorted(gaps))
    erased = max(now.erased, archive.erased_at())
    return SourceFrontier(now.epoch, oldest, now.space, known, held, archived, erased=erased)
