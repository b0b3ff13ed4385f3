"""Turn numbers: which turns of each client have been applied, however often they are sent.

A client numbers its turns.  When a connection is lost between a turn and its acceptance, the client
cannot know whether the turn took effect, and sends it again; the answer must then be the old epoch, and
nothing may happen twice.  The newest number of each identity is in the log; the epochs of the last few
turns are kept here as well, so that a whole window of them can be answered.

Identities that begin with ``~`` are *passing*: chosen at random by a client that connects again after a lost
connection, but never after a restart.  Of the passing identities without a connection only the latest are
kept, and of each principal no more than its share (``quota.identities``): a principal that uses many makes
its own be forgotten.

Always: a turn is applied only if its number is higher than any before it from the same identity, for all
connected identities and the latest others (``limits.identities``); names are bounded, and so is memory.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, MutableMapping
from typing import TYPE_CHECKING, Final, TypeGuard

from dataspace.errors import Refused
from dataspace.kernel.changes import Origin
from relay.log.notes import origin as origin_note
from relay.log.reader import NOT_APPLIED
from server.config.principals import IDENTITIES, NAME_BYTES, check_name
from server.owners.accounts import Account

if TYPE_CHECKING:
    from relay.log.writer import GroupCommit


COUNTED: Final = "identities"
"""The name of the account's count."""


class Latest:
    """Names with the account that each counts for, if there is one; the latest last.

    A bound in all alone lets one client push out what others need, by using names of its own until theirs are
    the oldest.  So beyond its share an account pushes out its own.

    Always: no more names than ``most``; no account has more than its share once ``excess`` is empty.
    """

    __slots__ = ("_is_counted", "_most", "_names", "_own", "_share")

    def __init__(self, most: int, share: Callable[[Account], int], *, is_counted: bool = False) -> None:
        """``is_counted`` if these are the identities that accounts are to show."""
        self._most = most
        self._share = share
        self._is_counted = is_counted
        self._names: OrderedDict[str, Account | None] = OrderedDict()
        self._own: dict[Account, OrderedDict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str, account: Account | None) -> None:
        """Takes a name as the latest, which must not be here."""
        self._names[name] = account
        if account is not None:
            self._own.setdefault(account, OrderedDict())[name] = None
            if self._is_counted:
                account.release(COUNTED, -1)  # beyond the quota an older one goes

    def discard(self, name: str) -> None:
        """Leaves a name out, if it is here."""
        account = self._names.pop(name, None)
        if account is None:
            return
        own = self._own[account]
        del own[name]
        if not own:
            del self._own[account]
        if self._is_counted:
            account.release(COUNTED)

    def excess(self, account: Account | None) -> str | None:
        """Returns the name to be left out next: the oldest of an account beyond its share, or of all."""
        own = self._own.get(account) if account is not None else None
        if account is not None and own is not None and len(own) > self._share(account):
            return next(iter(own))
        return next(iter(self._names)) if len(self._names) > self._most else None


WINDOW: Final = 4096
"""Turns of one identity whose epochs are remembered, at least; at most twice as many, 8 bytes each."""

KEPT: Final = 256
"""Turns of one identity whose epochs are remembered while it has no connection; the others are in the log."""

PASSED: Final = 4096
OWN_PASSED: Final = 1024
"""Passing identities that are remembered after their connection has ended: in all, and of one principal."""

PASSING: Final = "~"

ORIGIN_EPOCHS: Final = 4096
"""Epochs after which the log says again where the turns of a client come from, before its next turn."""

NEVER: Final = 1 << 62


class Client:
    """One identity: its newest turn, and the epochs of the latest ones."""

    __slots__ = ("_epochs", "_first", "account", "holder", "name", "origin", "origin_due", "sequence")

    def __init__(self, name: str, sequence: int = 0, epoch: int = 0) -> None:
        self.name = name
        self.holder = ""
        """The bearer of a token that came with this identity since the daemon started; empty if none."""
        self.account: Account | None = None
        """The account of the principal that has used this identity last, since the daemon started."""
        self.origin: Origin | None = None
        """Where its turns come from, if that is known."""
        self.origin_due = NEVER
        """The epoch before whose successor the log is to say where they come from."""
        self.sequence = sequence
        self._first = sequence
        self._epochs = array("q", [epoch] if sequence else [])

    def comes_from(self, name: str, principal: str, address: str) -> None:
        """Notes where the next turns come from; the log says so before the first of them."""
        origin = Origin(self.name, name, principal, address)
        if origin != self.origin:
            self.origin, self.origin_due = origin, 0

    def begin(self, sequence: int, log: GroupCommit, epoch: int, time: int) -> None:
        """Begins a turn after an epoch; raises ``Refused`` if a later one was applied while it waited."""
        if sequence <= self.sequence:
            text = f"turn {sequence} waited, and turn {self.sequence} was applied meanwhile: send it anew"
            raise Refused("not-applied", text)
        if self.origin_due <= epoch:  # the log says where the turns come from, so that no turn need carry it
            assert self.origin is not None  # else it is never due
            log.queue_note(epoch, time, origin_note(self.origin))
            self.origin_due = epoch + ORIGIN_EPOCHS

    def say_origin_of_request(self, log: GroupCommit, epoch: int, time: int) -> None:
        """Notes in the log that the next turn comes from a request."""
        if self.origin is not None:
            log.queue_note(epoch, time, origin_note(self.origin._replace(client="")))

    def applied(self, sequence: int, epoch: int) -> None:
        """Notes that a turn has become an epoch; O(1) amortised."""
        epochs = self._epochs
        if sequence != self.sequence + 1 or not epochs:
            epochs = self._skip(sequence)
        epochs.append(epoch)
        self.sequence = sequence
        if len(epochs) > 2 * WINDOW:
            del epochs[:WINDOW]
            self._first += WINDOW

    def _skip(self, sequence: int) -> array[int]:
        """Notes that the turns before this one were not applied; returns the epochs of the applied ones."""
        skipped = sequence - self.sequence - 1
        if skipped > WINDOW or not self._epochs:
            self._first, self._epochs = sequence, array("q")
        else:
            self._epochs.extend([NOT_APPLIED] * skipped)
        return self._epochs

    def epoch_of(self, sequence: int) -> int | None:
        """The epoch that a turn became, ``NOT_APPLIED``, or None unless it is among the latest.

        For turns up to the highest that was applied.
        """
        at = sequence - self._first
        return self._epochs[at] if 0 <= at < len(self._epochs) else None

    def shrink(self) -> None:
        """Remembers only the epochs of the latest turns."""
        if len(self._epochs) > KEPT:
            self._first += len(self._epochs) - KEPT
            self._epochs = self._epochs[-KEPT:]

    @property
    def first_epoch(self) -> int | None:
        """The epoch of the oldest turn that is remembered: those before it are in the log up to there."""
        return next((epoch for epoch in self._epochs if epoch != NOT_APPLIED), None)


def is_applied(epoch: int | None) -> TypeGuard[int]:
    """True if a turn has become this epoch: if it is known, and the turn was applied."""
    return epoch is not None and epoch != NOT_APPLIED


def refusal(sequence: int, epoch: int | None) -> Refused:
    """What to answer to an old turn that was ``NOT_APPLIED``, or that is not known any more (None)."""
    if epoch == NOT_APPLIED:
        text = f"turn {sequence} was refused or never came, and a later one was applied: send it anew"
        return Refused("not-applied", text)
    text = f"turn {sequence} is older than what the log retains: whether it was applied is not known"
    return Refused("old-sequence", text)


class Clients:
    """Every identity that has numbered turns; ``logged`` is the log's own table, kept equal.

    The latest ``most`` identities without a connection are remembered, and the latest ``PASSED`` passing
    ones.
    """

    __slots__ = ("_fresh", "_held", "_kept", "_known", "_logged", "_name_bytes", "_passed")

    def __init__(
        self,
        logged: MutableMapping[str, tuple[int, int]],
        *,
        most: int = IDENTITIES,
        name_bytes: int = NAME_BYTES,
        held: Collection[str] = (),
    ) -> None:
        """Identities that are ``held`` will ``connect``, and are not forgotten before."""
        self._known: dict[str, Client] = {}
        self._logged = logged
        self._name_bytes = name_bytes
        self._held: set[str] = set()  # those of connections
        self._fresh = Latest(PASSED, _own_passed)  # those that have numbered no turn yet
        self._passed = Latest(PASSED, _own_passed)
        self._kept = Latest(most, _own_identities, is_counted=True)
        for name in sorted(logged, key=lambda name: logged[name][1]):
            client = self._known[name] = Client(name, *logged[name])
            if name not in held:
                self._file(client)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, name: str, account: Account | None = None) -> Client:
        """Returns the identity of this name, a new one if it was never seen (or is forgotten).

        From now on it counts for the ``account``, if there is one.  Raises ``Refused`` for a name that is too
        long.
        """
        client = self._known.get(name)
        if client is None:
            check_name("an identity", name, self._name_bytes)
            client = self._known[name] = Client(name, *self._logged.get(name, (0, 0)))
        if account is not None:
            client.account = account
        if name not in self._held:
            self._file(client)
        return client

    def unhold(self, name: str) -> None:
        """Notes that an identity that was held since the start will not connect; does nothing for others."""
        client = self._known.get(name)
        if client is not None and name not in self._held:
            self._file(client)

    def check(self, name: str) -> None:
        """Raises ``Refused`` for a name that is too long for an identity."""
        check_name("an identity", name, self._name_bytes)

    def connect(self, name: str, account: Account | None = None) -> Client:
        """Like ``get``, for a connection: the identity is remembered until ``left``."""
        client = self.get(name, account)
        self._take(name)
        self._held.add(name)
        return client

    def holder(self, name: str) -> str:
        """Returns the holder of an identity, as ``Client.holder``; empty for an identity that was never
        seen."""
        client = self._known.get(name)
        return "" if client is None else client.holder

    def left(self, client: Client) -> None:
        """Notes that a connection of this identity has ended."""
        self._held.discard(client.name)
        if not client.sequence:
            self._take(client.name)
            self._known.pop(client.name, None)
        else:
            client.shrink()
            self._file(client)

    def clear(self) -> None:
        """Counts no identity any more, for any account."""
        for name in self._known:
            self._take(name)

    def _take(self, name: str) -> None:
        for lately in (self._fresh, self._passed, self._kept):
            lately.discard(name)

    def _file(self, client: Client) -> None:
        """Notes an identity as the latest of its kind; the oldest one beyond a bound is forgotten."""
        self._take(client.name)
        lately = self._fresh
        if client.sequence:
            lately = self._passed if client.name.startswith(PASSING) else self._kept
        lately.add(client.name, client.account)
        while (name := lately.excess(client.account)) is not None:
            lately.discard(name)
            if lately is self._fresh and self._known[name].sequence:  # it has numbered its first turn since
                self._file(self._known[name])
            else:
                del self._known[name]
                self._logged.pop(name, None)


def _own_passed(_account: Account) -> int:
    return OWN_PASSED


def _own_identities(account: Account) -> int:
    return IDENTITIES if account.quotas is None else account.quotas.identities
