"""Latest: names in the order in which they were last used, so many in all and so many of each account.

A bound in all alone lets one client push out what others need, by using names of its own until theirs are the
oldest.  So beyond its share an account pushes out its own.

Always: no more names than ``most``; no account has more than its share once ``excess`` is empty.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from server.owners.accounts import Account

IDENTITIES: Final = "identities"
"""The name of the account's count."""


class Latest:
    """Names with the account that each counts for, if there is one; the latest last."""

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
                account.give(IDENTITIES, -1)  # beyond the quota an older one goes

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
            account.give(IDENTITIES)

    def excess(self, account: Account | None) -> str | None:
        """Returns the name to be left out next: the oldest of an account beyond its share, or of all."""
        own = self._own.get(account) if account is not None else None
        if account is not None and own is not None and len(own) > self._share(account):
            return next(iter(own))
        return next(iter(self._names)) if len(self._names) > self._most else None
