"""Bearers: the one check of what a connection may call its own.

Turns, publications, leases, staged operations and producers are all known by names that clients choose, so a
name alone proves nothing.  Each request that states one asks here for the name under which the daemon keeps
it.  A name that may be shared needs a right that lists it (durable owners, identities that outlast the
connection, readers, topics).  All others belong to their user: the daemon keeps them with the principal as
their end, ``lease:1000:backup @ token:gateway``, so that two bearers cannot mean the same one.  That is in
the log as well, and a daemon that starts again still has it.

Always: without tokens every name is kept as it was stated; no name that a client states can have the end of
another bearer's.
"""

from __future__ import annotations

from typing import Final

from dataspace.errors import Refused
from server.config.principals import DAEMON, Principal
from server.config.rights import OPEN, Permit
from server.owners.turn_numbers import PASSING, Clients

LEASE: Final = "lease:"
DURABLE: Final = "durable:"
OWNER: Final = "owner:"
"""What the identity of a durable owner begins with."""

AT: Final = " @ "
"""Between a name and its bearer."""


class Bearer:
    """The rights and the identity of one connection.

    ``holder`` is its principal as text, empty without a token.
    """

    __slots__ = ("end", "holder", "permit", "principal")

    def __init__(self, permit: Permit, principal: Principal) -> None:
        self.permit: Final = permit
        self.principal: Final = principal
        self.holder: Final = "" if permit.principal is None else str(permit.principal)
        stamps = "".join([f" {name}={word}" for name, word in sorted(permit.stamp.items())])
        self.end: Final = f"{AT}{self.holder}{stamps}" if self.holder else ""
        """What the names end with that belong to this bearer alone."""

    def own(self, stated: str) -> str:
        """Returns the name under which something is kept that belongs to this bearer alone."""
        return f"{_plain(stated)}{self.end}"

    def owner(self, stated: str) -> str:
        """Returns the owner of facts that a turn or a publication states; raises ``Refused``.

        It is a lease of this bearer, or a durable owner to which it has a right: as ``NAME``, or as it is
        shown, ``durable:NAME``.
        """
        if stated.startswith(LEASE):
            return self.lease(stated)
        name = _plain(stated).removeprefix(DURABLE)
        if not name:
            raise Refused("bad-request", "owner must name a durable owner, or a lease")
        self.permit.check_durable(name)
        return self._stamped(f"{DURABLE}{name}")

    def lease(self, stated: str) -> str:
        """Returns the owner under which a lease is kept, if it may be granted; raises ``Refused``."""
        self.permit.check_writes()
        return self.own(stated)

    def client(self, stated: str) -> str:
        """Returns the identity that a hello states, under which its turns are numbered; raises ``Refused``.

        A passing identity is this bearer's own; an identity that outlasts its connection needs a right.
        """
        if _plain(stated).startswith(PASSING):
            return self.own(stated)
        if stated.startswith(OWNER):  # of a durable owner, who may be named as it is shown
            stated = OWNER + stated.removeprefix(OWNER).removeprefix(DURABLE)
        self.permit.check_durable(stated.removeprefix(OWNER))
        return self._stamped(stated)

    def publisher(self, stated: str, owner: str, clients: Clients) -> str:
        """Returns the identity that a publication for an owner is numbered under; raises ``Refused``.

        It is the stated one if that is passing, or the bearer has a right to it.  Any other belongs to the
        owner, and is apart from the same name under another owner; a session's is refused.
        """
        name = stated.removeprefix(OWNER)
        if _plain(stated).startswith(PASSING) or name != stated or self.permit.allows_durable(name):
            return self.client(stated)
        if clients.holder(self._stamped(stated)):
            raise Refused("not-allowed", f"a session of another token numbers its turns as {stated!r:.80}")
        return f"{stated}{AT}{owner}"

    def shown(self, text: str, data: str) -> str:
        """Returns a text about an error; without the right to inspect it has no path of the daemon's data."""
        return text if self.permit.inspects else text.replace(data, "(data)")

    def _stamped(self, name: str) -> str:
        """Returns a name that may be shared, which a bearer with a stamp has for itself."""
        return f"{name}{self.end}" if self.permit.stamp else name


TRUSTED: Final = Bearer(OPEN, DAEMON)
"""The daemon itself, which may do everything."""


def stated(name: str) -> str:
    """Returns a name as a client stated it, from the one under which it is kept.

    >>> stated("durable:w"), stated("lease:1000:w @ token:gateway")
    ('w', 'lease:1000:w')
    """
    return parted(name)[0].removeprefix(DURABLE)


def parted(name: str) -> tuple[str, str]:
    """Returns the name without its end, and what the end says of the bearer; empty where it has none.

    >>> parted("durable:w @ token:gateway by=sensor-7")
    ('durable:w', 'token:gateway by=sensor-7')
    """
    own, at, end = name.rpartition(AT)
    return (own, end) if at else (name, "")


def beside(name: str, more: str) -> str:
    """Returns the name of another owner of the same bearer.

    >>> beside("session:0.1 @ token:gateway", "interests"), beside("session:0.1", "interests")
    ('session:0.1 interests @ token:gateway', 'session:0.1 interests')
    """
    own, end = parted(name)
    return f"{own} {more}{AT}{end}" if end else f"{own} {more}"


def _plain(stated: str) -> str:
    """Returns a name that a client stated; raises ``Refused`` for a name that reads as if it had an end."""
    if AT in stated:
        raise Refused("bad-request", f"{stated!r:.80} contains {AT!r}, which stands before a bearer's name")
    return stated
