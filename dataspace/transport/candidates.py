"""Candidates: the addresses of one store, and which of them a client tries next.

A store may have several daemons: one leads, and the others follow it.  A client tries the address to which a
daemon has sent it, then the last good address, then the others.  This is apart from the connections,
because the asynchronous client and the blocking one go by the same rules, and because a mistake here is a
client that reconnects without a pause, or a token in the wrong hands.

Always: a round tries each listed address once, and besides at most ``HOPS`` addresses that daemons have sent
the client to; between two rounds the caller makes a pause.  An address that is not listed is tried only if it
is no less secure than the one from which it came.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Sequence
from typing import Final

from dataspace.errors import DataspaceError, ProtocolError, Unreachable, UsageError
from dataspace.transport.addresses import Address, default_url, is_own_machine, parse_url

EACH_SECONDS: Final = 5.0
"""How long connecting to one of several addresses may take: the next one may answer."""

READ: Final = ("leader", "any")
"""Where a client may read: only from the daemon that leads, or from any daemon of the store."""

HOPS: Final = 3
"""How often in a row a client goes at once where a daemon sends it."""

_COMMA: Final = re.compile(r"\s*,\s*(?=(?:tcp|tls|unix|fd):)")


def parse_urls(urls: str | Sequence[str] | None) -> tuple[Address, ...]:
    """Returns the addresses of one store, given as text with commas or as a sequence; each one once.

    None is the default address.  Raises ``UsageError`` for text that is no address.

    >>> [each.url for each in parse_urls("tcp://a:7377, tls://b,tcp://a:7377")]
    ['tcp://a:7377', 'tls://b:7377']
    """
    texts = [urls or default_url()] if urls is None or isinstance(urls, str) else urls
    listed = [parse_url(each) for text in texts for each in _COMMA.split(text)]
    if not listed:
        raise UsageError("no address: a client needs one at least")
    return tuple(dict.fromkeys(listed))


def joined(addresses: Sequence[Address]) -> str:
    """Returns the addresses as one text, which ``parse_urls`` reads."""
    return ",".join(each.url for each in addresses)


def may_send_on(source: Address, target: Address) -> bool:
    """True if a daemon at ``source`` may send its clients, and with them their tokens, on to ``target``.

    Encrypted traffic stays encrypted; traffic of a Unix socket leaves this machine only encrypted; no daemon
    of another machine sends clients to sockets of theirs.

    >>> a, b = parse_urls("tls://a:1,tcp://b:1")
    >>> may_send_on(a, b), may_send_on(b, a)
    (False, True)
    """
    if target.descriptor is not None or (source.tls and not target.tls):
        return False
    local = source.descriptor is not None or bool(source.path)
    if target.path or is_own_machine(target.host):
        return local or is_own_machine(source.host)
    return target.tls or not local


def one_of(failed: Sequence[DataspaceError]) -> DataspaceError:
    """Returns the error for several addresses: the first refusal, else the reasons of all."""
    refusals = [error for error in failed if isinstance(error, ProtocolError)]
    if refusals or len(failed) == 1:
        return (refusals or failed)[0]
    return Unreachable("; ".join(dict.fromkeys(map(str, failed))))


class Candidates:
    """The addresses of one store in the order in which they are tried; ``shuffled`` if any will do.

    A client that ``stays`` goes to no address that it has not named.
    """

    def __init__(self, listed: Sequence[Address], *, shuffled: bool = False, stays: bool = False) -> None:
        self._stays: Final = stays
        self.listed: Final = tuple(listed)
        self._order = random.sample(self.listed, len(self.listed)) if shuffled else list(self.listed)
        self.now: Address = self._order[0]
        """The address of the connection, or of the last attempt."""
        self._target: Address | None = None
        self._left: deque[Address] = deque()
        self._hops = 0
        self._is_here = False
        """True if the latest connection was to this machine."""
        self._stuck: set[Address] = set()
        """Listed addresses whose daemons have sent this client to where it may not go."""

    @property
    def is_named(self) -> bool:
        """True if the client has named this daemon, and no other one."""
        return self.listed == (self.now,)

    @property
    def is_sent_on(self) -> bool:
        """True if a daemon has sent the client to an address, which is to be tried without a pause."""
        return self._target is not None and self._hops <= HOPS

    def begin(self) -> None:
        """Begins a round; after too many hops in a row the listed addresses come first, as those may loop."""
        target = () if self._target is None else (self._target,)
        others = () if self.is_sent_on or not target else [each for each in self._order if each != self.now]
        self._target = None
        self._left = deque(dict.fromkeys((*others, *target, *self._order)))

    def next_address(self) -> Address | None:
        """Returns the address to try next, or None at the end of the round."""
        if self.is_sent_on:
            assert self._target is not None
            self.now, self._target = self._target, None
            if self.now in self._left:
                self._left.remove(self.now)
        elif self._left:
            self.now = self._left.popleft()
        else:
            return None
        return self.now

    def check_reached(self, peer: str) -> None:
        """Checks where a new connection leads, by the address of its ``peer``, before anything is sent to it.

        Raises ``Unreachable`` if a daemon of another machine has sent this client to a socket of this
        machine, under whatever name.
        """
        is_here = peer == "unix" or is_own_machine(peer.rpartition(":")[0])
        if is_here and not self._is_here and self.now not in self.listed:
            raise Unreachable(f"{self.now.url} is on this machine, and a daemon of another one named it")
        self._is_here = is_here

    def welcomed(self) -> None:
        """Notes that the address is a good one: it is tried first, until another one is better."""
        self._order = [self.now, *[each for each in self._order if each in self.listed and each != self.now]]

    def lasted(self) -> None:
        """Notes that a connection was of use for a while, so that the next hops are the first in a row."""
        self._hops = 0
        self._stuck.clear()

    def is_stuck(self, reason: ProtocolError) -> bool:
        """True if a daemon sends this client to where it may not go, and so does every listed one."""
        target = _address(reason.url)
        if reason.code != "elsewhere" or not reason.url or (target is not None and self._may_go(target)):
            return False
        self._stuck.add(self.now)
        return self._stuck.issuperset(self.listed)

    def _may_go(self, target: Address) -> bool:
        return target in self.listed or (not self._stays and may_send_on(self.now, target))

    def sent_away(self, reason: ProtocolError) -> None:
        """Notes that the daemon does not serve this client, and perhaps which one does.

        The address it gives is next, at once if not too many in a row were so.  The daemon itself is next
        time tried last.
        """
        self._order.sort(key=lambda address: address == self.now)
        target = _address(reason.url) if reason.code != "no-leader" else None
        if target is None or target == self.now or self._stays:
            return
        if self._may_go(target):
            self._target = target
            self._hops += 1


def _address(url: str) -> Address | None:
    """Returns the address that a daemon gives; None if there is none, or none that is understood."""
    try:
        return parse_url(url) if url else None
    except UsageError:
        return None
