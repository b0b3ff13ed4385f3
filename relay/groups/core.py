"""Handing out: which member gets which item of a group next, and which member has which item.

The oldest item goes out first, so an item that was given back comes before newer items; where items have
levels, those of the highest (``ready.py``).  Members with credit take turns.  Where a group has a key, the
items of one key are worked on in order: while any of a key is out, the rest of that key goes to the same
member.  Nothing here is durable; ``state.py`` has what is.

Always: an item is out to one member at a time; its token is higher than every token before; of one key the
items that are out are the oldest, and all are out to one member; of an exclusive group, all are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from heapq import heappush
from typing import Final, TypeAlias

from dataspace.errors import Refused
from index.values.values import Value
from relay.groups.allowance import Bound, TokenBucket
from relay.groups.items import GroupItems
from relay.groups.members import GroupMember, GroupOptions, JobDelivery
from relay.groups.memory import ItemMemory, delivery_bytes
from relay.groups.state import At, GroupState, Item

BATCH: Final = 16
"""Items that one member gets before it is another member's turn."""

NEVER: Final = float("inf")

TERM_BITS: Final = 32
"""A token has the term of the log above so many bits, and a counter in them."""

Cell: TypeAlias = tuple[At, int]
"""An item and the token of its delivery."""


class GroupCore(GroupItems):
    """Hands out the items of one group; not safe for threads.

    ``holds`` says whether a fact is still there; ``key_at`` returns the key of a value, and ``level_at`` its
    priority, where there is one.
    """

    def __init__(
        self,
        state: GroupState,
        *,
        term: int,
        options: GroupOptions,
        holds: Callable[[Value], bool],
        key_at: Callable[[Value], Hashable] | None = None,
        level_at: Callable[[Value], int] | None = None,
        first: int = 0,
        memory: ItemMemory | None = None,
        handed_before: Callable[[At], bool] = lambda _: True,
    ) -> None:
        """Tokens begin with the term, or with ``first`` if that is higher; items count in ``memory`` until
        ``close``.  ``handed_before`` is false for an item that cannot have been handed out before the start.
        """
        super().__init__(state, key_at, level_at, memory)
        self.options = options
        """They may be replaced, but for the key, the priority and the kinds."""
        self.members: dict[Hashable, GroupMember] = {}
        self._first = term << TERM_BITS
        self._token = max(first, self._first + 1)
        self._holds = holds
        self._handed_before = handed_before
        self.taken: dict[int, JobDelivery] = {}
        """The deliveries that programs have taken, by token, in the order of their deadlines."""
        self._alone: deque[Item] = deque()
        """Items in their last attempt, for a member that has nothing else."""
        self._row: deque[GroupMember] = deque()
        self._bucket: TokenBucket | None = None
        self.resumes = NEVER
        """When the rate allows more to be handed out, if nothing else stops that."""
        for item in sorted(state.undone.values(), key=lambda undone: undone.at):
            self.enter(item)

    # -- members --------------------------------------------------------------------------------------

    def join(self, member: GroupMember) -> None:
        """Adds a member, or a new one in place of the member of the same holder, which keeps its items."""
        before = self.members.get(member.holder)
        if before is not None:
            for delivery in before.out.values():
                delivery.member = member
            member.out, member.keyed, member.size = before.out, before.keyed, before.size
            member.is_alone = before.is_alone
            for queue in self._keys.values():
                if queue.member is before:
                    queue.member = member
            before.clear()
            before.is_ending = True
        self.members[member.holder] = member
        self._stand(member)

    def leave(self, member: GroupMember, *, blame: bool) -> list[JobDelivery]:
        """Removes a member; returns what it had and has failed, taken or about to be: the caller fails it.

        All else that it had is given back.
        """
        if self.members.get(member.holder) is member:
            del self.members[member.holder]
        member.is_ending = True
        failed: dict[int, JobDelivery] = {}
        is_next_failed = False
        for delivery in member.out.values():
            if blame and (delivery.is_taken or not is_next_failed):
                failed[delivery.token] = delivery
                is_next_failed |= not delivery.is_taken
        for delivery in reversed(list(member.out.values())):
            if delivery.token not in failed and delivery.token in self.out:
                self.give_back(delivery)
        self._drop_keyed(member)
        return list(failed.values())

    def _drop_keyed(self, member: GroupMember) -> None:
        keyed, member.keyed = member.keyed, []
        for _, item in keyed:
            if not item.token and item.at in self.state.undone:
                queue = self._keys[item.key]
                if queue.member is member and not queue.out:
                    queue.member = None
                self._head(queue)

    def heard(self, member: GroupMember) -> None:
        """Notes that a member says something, so that it gets items again."""
        if member.is_quiet:
            member.is_quiet = False
            self._stand(member)

    def _stand(self, member: GroupMember) -> None:
        if member.credit > 0 and not member.is_in_row:
            member.is_in_row = True
            self._row.append(member)

    # -- handing out ----------------------------------------------------------------------------------

    def assign(self, now: float = 0.0) -> Iterator[JobDelivery]:
        """Yields items as they are handed out, until no member may have more or no item is ready; ``now`` is
        in seconds of a monotonic clock.  O(members) more where the group limits what is out.

        The caller may stop after any delivery.
        """
        idle, options = 0, self.options
        bound = (
            Bound(options, self.members.values(), self.out) if options.most_out or options.exclusive else None
        )
        self.resumes = NEVER
        while self._row and idle < len(self._row) and not options.paused:
            if not (self._ready or self._alone or any(each.keyed for each in self._row)):
                return
            if options.rate and not self._may_now(options.rate, now):
                return
            member = self._row.popleft()
            member.is_in_row = False
            share = max(1, min(BATCH, len(self._ready) // max(1, len(self.members))))
            given = 0
            try:
                while given < share and member.credit > 0 and (bound is None or bound.allows(member)):
                    if options.rate and not self._may_now(options.rate, now):
                        break
                    item = self._next(member)
                    if item is None:
                        break
                    given += 1
                    if self._level_at is not None:
                        self._ready.handed_out()
                    if options.rate and self._bucket is not None:
                        self._bucket.take(now)
                    delivery = self._hand_out(item, member)
                    if bound is not None:
                        bound.note(member)
                    yield delivery
            finally:
                self._stand(member)
            idle = 0 if given else idle + (member.credit > 0)

    def _may_now(self, rate: float, now: float) -> bool:
        """True if the rate allows a further item; else ``resumes`` says when."""
        if self._bucket is None or self._bucket.rate != rate:
            self._bucket = TokenBucket(rate, now)
        if self._bucket.has(now):
            return True
        self.resumes = self._bucket.next_at
        return False

    def _next(self, member: GroupMember) -> Item | None:
        """Returns the item that a member gets next."""
        if self._alone and not member.out:
            last = self._alone.popleft()
            if self._is_ready(last) and self._is_next(last, member):
                return last
        while (item := self._ready.pop(member.keyed)) is not None:
            if not self._is_ready(item) or not self._is_next(item, member):
                continue
            if self._is_last(item) and member.out:
                self._alone.append(item)
                member.is_alone = True  # it gets nothing more until it has nothing
                return None
            return item
        return None

    def _is_last(self, item: Item) -> bool:
        """True if an item that has failed is in its last attempt."""
        return 0 < self.options.attempts <= item.attempts + 1 and item.attempts > 0

    def _is_ready(self, item: Item) -> bool:
        if (
            item.token or item.due or self.state.undone.get(item.at) is not item
        ):  # ``_waits``, at half the cost
            return False
        if item.is_message or self._holds(item.value):
            return True
        self._pass_over(item)
        return False

    def _is_next(self, item: Item, member: GroupMember) -> bool:
        """True if an item is the next of its key, and its key is not another member's."""
        if self._key_at is None:
            return True
        queue = self._keys[item.key]
        if queue.head is not item:
            return False
        if queue.out and queue.member is not member:
            if queue.member is not None:
                heappush(queue.member.keyed, (self._ready.rank(item), item))
                self._stand(queue.member)
            return False
        return True

    def _hand_out(self, item: Item, member: GroupMember) -> JobDelivery:
        token, self._token = self._token, self._token + 1
        delivery = JobDelivery(item, member, token)
        item.token = item.given = token
        item.holder = member.principal
        self.out[token] = member.out[token] = delivery
        member.size += item.size
        member.is_alone = member.is_alone or self._is_last(item)
        self.hold(delivery_bytes(item))
        self.counts.delivered += 1
        if self._key_at is not None:
            queue = self._keys[item.key]
            queue.hand_out(item, member)
            self._head(queue)
        return delivery

    def adopt(self, at: At, token: int, member: GroupMember) -> JobDelivery | None:
        """Gives an item that a member says it has to that member, under a new token; None if it cannot.

        It can if the item is undone and out to nobody, and the delivery was of an earlier term; of an
        exclusive group, if nothing is out to another member.  What is parked was given back.
        """
        item = self.state.undone.get(at)
        if item is None or item.token or not self.state.least <= token < self._first or item.is_parked:
            return None
        if self.options.exclusive and len(self.out) > len(member.out):
            return None
        if self._key_at is not None and not self._is_next_of_key(item, member):
            return None
        self.counts.adopted += 1
        self._be_due(item)
        return self._hand_out(item, member)

    def _is_next_of_key(self, item: Item, member: GroupMember) -> bool:
        queue = self._keys[item.key]
        return queue.head is item and (not queue.out or queue.member is member)

    # -- ends of deliveries ---------------------------------------------------------------------------

    def judge(self, cells: Sequence[Cell], principal: object) -> list[At]:
        """Returns the items that may not be done by these deliveries; empty if all may be.

        Raises ``Refused("out-of-order")`` where an earlier item of a key is neither done nor among them, or
        that is not known, soon after a start.
        """
        lost = [at for at, token in cells if not self._may_be_done(at, token, principal)]
        unread = [at for at, _ in cells if at not in self.state.undone]
        if len(unread) + len(self.state.above) > self.options.window:  # no more can have been out
            lost = list(dict.fromkeys([*lost, *unread]))
        if len({at for at, _ in cells}) < len(cells):
            raise Refused("bad-request", "a delivery stands twice among those that are done")
        if not lost and self._key_at is not None:
            self._check_order([at for at, _ in cells])
        if lost:
            self.counts.refused += 1
        return lost

    def _may_be_done(self, at: At, token: int, principal: object) -> bool:
        state = self.state
        if not state.least <= token < self._token or not state.is_undone(at):
            return False
        item = state.undone.get(at)
        if item is None:  # it is not read yet since the start, so only an earlier term can have had it
            return token < self._first and self._handed_before(at)
        if item.token:
            delivery = self.out[item.token]
            return item.token == token and principal in (None, delivery.member.principal)
        if item.given:  # its time is over, and it waits for another member
            return item.given == token and principal in (None, item.holder)
        return token < self._first and self._handed_before(at)

    def _check_order(self, items: Iterable[At]) -> None:
        among: dict[Hashable, set[At]] = {}
        for at in items:
            item = self.state.undone.get(at)
            if item is None:
                text = f"item {at} was not read yet since the start, so what comes before it is not known"
                raise Refused("out-of-order", text)
            among.setdefault(item.key, set()).add(at)
        for key, at_once in among.items():  # each key once, and no further than to the last of them
            self._check_first(key, at_once)

    def _check_first(self, key: Hashable, at_once: set[At]) -> None:
        """Raises ``Refused`` unless these items of a key are the first of its undone items."""
        missing, left = None, len(at_once)
        for item in self._keys[key].in_order():
            if item.at not in at_once:
                missing = missing or item
                continue
            if missing is not None:
                text = f"item {item.at} is done before item {missing.at} of its key {key!r:.80}"
                raise Refused("out-of-order", text)
            left -= 1
            if not left:
                return

    def done(self, items: Iterable[At]) -> list[Item]:
        """Takes items for done that ``judge`` has passed; returns what was undone here.

        The note of it must be in the log with the turn: the state is changed here or by that note.
        """
        found: list[Item] = []
        for at in items:
            item = self.state.undone.get(at)
            self.state.done(at)
            if item is not None:
                found.append(item)
        for item in found:
            self.finished(item)
        return found

    def finished(self, item: Item) -> None:
        """Frees the credit of an item that is done."""
        if item.token:
            member = self._end(self.out[item.token])
            self._forget(item)
            item.token = 0
            self._stand(member)
        else:
            self._forget(item)
        self.counts.done += 1

    def _end(self, delivery: JobDelivery) -> GroupMember:
        """Ends a delivery, but not the claim of its item."""
        member = delivery.member
        del self.out[delivery.token]
        self.hold(-delivery_bytes(delivery.item))
        self.taken.pop(delivery.token, None)
        if member.out.pop(delivery.token, None) is not None:
            member.size -= delivery.item.size
        if not member.out:
            member.is_alone = False
            if member.is_brief and member.is_ending and self.members.get(member.holder) is member:
                del self.members[member.holder]
        return member

    def give_back(self, delivery: JobDelivery, *, due: int = 0) -> list[JobDelivery]:
        """Takes an item back, which is ready again, or once it is due.

        Returns the later deliveries of its key, which are taken back too.
        """
        member = self._end(delivery)
        item = delivery.item
        item.token, item.due = 0, due
        self.postponed += due > 0
        revoked: list[JobDelivery] = []
        if self._key_at is None:
            self._line_up(item)
        else:
            queue = self._keys[item.key]
            for later in queue.take_back(item)[::-1]:
                revoked.append(self.out[later.token])
                self._stand(self._end(self.out[later.token]))
                later.token = 0
            self._head(queue)
        self._stand(member)
        return revoked

    def fails(
        self, delivery: JobDelivery, wall: int, *, after: float = 0.0, blame: bool = True
    ) -> int | None:
        """Returns when a failed item is due, in microseconds since 1970 (0: at once); None if it is dead.

        The attempt is counted if there is ``blame``; ``give_back`` or ``done`` must follow.
        """
        item = delivery.item
        if blame:
            item.attempts += 1
            if 0 < self.options.attempts <= item.attempts:
                return None
            after = max(after, self.options.wait(item.attempts))
        return wall + round(after * 1_000_000) if after > 0 else 0

    @property
    def next_token(self) -> int:
        """The token that the next delivery gets."""
        return self._token

    @property
    def blocked(self) -> int:
        """Undone items that wait for an earlier one of their key; O(keys)."""
        return sum([max(0, len(each) - max(1, len(each.out))) for each in self._keys.values()])
