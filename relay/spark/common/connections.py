"""Links: connections that are kept between tasks, and patience with a daemon that is away for a moment.

Spark unpickles a new reader for every task, but runs the tasks in processes that live on.  So links are
kept by the module, by process and daemon, and lent to one user at a time.  A daemon that restarts breaks
them all; the request is tried again on a new link, with growing pauses, for as long as ``connectTimeout``
allows, and only then fails.

Always: a link that did not come back in good order is closed, never lent again, and none is lent to two; no
lock is needed, since taking one out of a list is one step and a forked child has another process number.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from dataspace.client.bulk.client import BulkClient
from dataspace.errors import Broken, Closed, DataspaceError, ProtocolError, Unreachable
from dataspace.transport.credentials import Tls
from dataspace.wire.features import MAIN
from relay.objects.objects import without_password

T = TypeVar("T")

log: Final = logging.getLogger("dataspace.spark")

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
KEPT: Final = 4
"""Idle links that a process keeps for one daemon."""

AWAY: Final = (Broken, Closed, Unreachable)
"""What a daemon that is away for a moment looks like."""

_open: Final[dict[BulkClient, int]] = {}
_idle: Final[dict[tuple[int, DaemonPeer], list[BulkClient]]] = {}


@contextmanager
def lent(peer: DaemonPeer) -> Iterator[BulkClient]:
    """A link to a daemon, kept afterwards unless its user failed or left early.

    Raises ``Unreachable`` when no daemon answers, ``ProtocolError`` for a token that it does not accept.
    """
    idle = _idle.setdefault((os.getpid(), peer), [])
    try:
        link = idle.pop()
    except IndexError:  # asked for like this because another thread may take the last one
        link = peer.link()
    _open[link] = os.getpid()
    returned = False
    try:
        yield link
        returned = True
    finally:
        if returned and not link.closed and len(idle) < KEPT:
            idle.append(link)
        else:
            link.close()
            _open.pop(link, None)


def close_all() -> None:
    """Closes every link of this process, lent links included."""
    for link in [link for link, pid in list(_open.items()) if pid == os.getpid()]:
        link.close()
        _open.pop(link, None)
    _idle.clear()


class RetryPatience:
    """How much longer a daemon, or a store, may be away: ``bound`` seconds since it last answered."""

    def __init__(self, bound: float) -> None:
        self._bound = bound
        self.answered()

    def answered(self) -> None:
        """The daemon is there: the time starts anew."""
        self._until: float | None = None
        self._pause = 0.0

    def spent(self, error: DataspaceError) -> None:
        """Waits before another try; raises ``Unreachable`` once the daemon has been away for too long.

        The first try comes at once: a kept link that broke says nothing about the daemon of now.  An error
        that waiting does not cure is raised at once.
        """
        if _is_lasting(error):
            hint = "waiting does not cure this; see the options tlsCa, tlsCertificate, tlsKey, tlsServerName"
            raise type(error)(f"{error}; {hint}") from None
        if not self.waits(error):
            raise Unreachable(f"{error}; waited {self._bound:g} s for it (connectTimeout)")

    def waits(self, why: object) -> bool:
        """Waits before another try, longer each time; False, without waiting, once the time is over."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._bound
        if now + self._pause > self._until:
            return False
        if self._pause:
            log.warning("%s; trying again in %.2g s", why, self._pause)
            time.sleep(self._pause)
        self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
        return True


LASTING: Final = (
    "CERTIFICATE",
    "UNKNOWN_CA",
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "PROTOCOL_VERSION",
)
"""Parts of the reasons for which TLS fails in the same way again, by OpenSSL's names."""


def _is_lasting(error: DataspaceError) -> bool:
    """True if certificates are the reason, or a side without TLS: the same again, however long one waits.

    A daemon that ends in the middle of a handshake is not a lasting error (``SSLEOFError``).
    """
    cause = error.__cause__
    if not isinstance(cause, ssl.SSLError):
        return False
    reason = (getattr(cause, "reason", None) or "").upper()
    return isinstance(cause, ssl.SSLCertVerificationError) or any(each in reason for each in LASTING)


def asked(peer: DaemonPeer, bound: float, question: Callable[[BulkClient], T]) -> T:
    """Returns the answer to a question, which is asked again while the daemon is away, for ``bound`` s."""
    patience = RetryPatience(bound)
    while True:
        try:
            with lent(peer) as link:
                return question(link)
        except AWAY as error:
            patience.spent(error)


SYSTEM_TLS: Final = Tls()
"""The authorities of the system, and no client certificate."""


@dataclass(frozen=True, slots=True)
class DaemonPeer:
    """A daemon, one of its spaces, and the credentials for it.

    ``others`` are further addresses of the same store; with ``read="any"`` each of them serves what is read.
    ``archive`` is the place of an archive to be read too, and ``identity`` chooses one of its logs.
    Without an ``url`` there is no daemon, and the archive is all.
    """

    url: str
    token: str = field(default="", repr=False)
    tls: Tls = SYSTEM_TLS
    space: str = MAIN
    others: tuple[str, ...] = ()
    read: str = "leader"
    archive: str = ""
    identity: str = ""

    @property
    def shown(self) -> str:
        """Returns what is read, for people: the daemon, else the archive without a password."""
        return self.url or without_password(self.archive)

    def link(self) -> BulkClient:
        """Returns a new link; raises what ``BulkClient`` does, with Spark's options named for a token."""
        try:
            return BulkClient(
                ",".join([self.url, *self.others]),
                name="spark",
                space=self.space,
                token=self.token,
                tls=self.tls,
                read=self.read,
            )
        except ProtocolError as error:
            if error.code != "unauthorized":
                raise
            raise ProtocolError(error.code, _about_token(self, error.text)) from None


def _about_token(peer: DaemonPeer, refusal: str) -> str:
    """Returns what a daemon says of a token, for a user of options."""
    if not peer.token:
        return (
            f'the daemon at {peer.url} wants a token: give .option("token", …), or tokenFile with a file on '
            f"the driver, or set $DATASPACE_TOKEN or $DATASPACE_TOKEN_FILE there"
        )
    return f"{refusal} (it comes from option token, tokenFile or the driver's environment)"
