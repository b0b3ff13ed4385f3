"""Sessions: windows of a key, which end where nothing comes for a while.

Always: two items of a key are in one session if, and only if, no gap is between them.  A new item can join
two open sessions; an item that is taken back can part an open session.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import Any, Final

from sortedcontainers import SortedDict

from dataspace.flows.operators import pair
from dataspace.flows.windows import Clock, Completing, micros_in
from dataspace.instants import NEVER
from index.values.values import key


class SessionWindows(Completing):
    """Passes on ``((k, start), v)`` for pairs ``(k, v)``, for the session of the key that has the item.

    A session is the items of a key between which less than ``gap`` passes.  It is complete once the watermark
    is a gap after its newest item.  An item between two sessions joins both; an item that is taken back may
    part its session: items whose session begins at another time then are taken back and passed on again.
    O(log items of the key), and O(items that change their session).
    """

    def __init__(
        self,
        gap: float,
        clock: Clock,
        at: Callable[[Any], Any] | None = None,
        lateness: float = 0,
        *,
        keep: float = 0,
        final: bool = False,
    ) -> None:
        super().__init__(clock, at, lateness, keep, final)
        self.gap: Final = micros_in(gap, "a gap")
        self._keys: dict[Hashable, SortedDict] = {}
        """The open sessions of each key by their starts: each has lists of values by their times."""
        self._names: dict[Hashable, Any] = {}
        self._ends: list[tuple[int, int, int, Hashable]] = []
        """When to look at a session, not later than its end."""

    def _add(self, time: int, item: Any, copies: int) -> bool:
        name, value = pair(item, "a session")
        at = key(name)
        sessions = self._keys.get(at)
        if sessions is None:
            sessions = SortedDict()
        place = sessions.bisect_right(time)
        before = sessions.keys()[place - 1] if place else None
        after = sessions.keys()[place] if place < len(sessions) else None
        if before is not None and time - sessions[before].keys()[-1] >= self.gap:
            before = None
        if after is not None and after - time >= self.gap:
            after = None
        if before is None and after is None and time + self.gap <= self.watermark:
            return False
        self._keys[at] = sessions
        self._names.setdefault(at, name)
        start = time if before is None else before
        if before is None:
            sessions[start] = SortedDict()
            self._look_at(at, start, time)
        if after is not None:
            self._move(at, after, start)
        values = sessions[start].setdefault(time, [])
        values.extend([value] * copies)
        self._say(self._window(at, start), value, copies)
        return True

    def _changes(self) -> list[tuple[Any, int]]:
        """Returns the changes of the tick, the newest first: a late item may join the session of a newer
        one."""
        changes = super()._changes()
        if self._at is None:
            return changes
        return sorted(changes, key=lambda change: (change[1] < 0, -self._time_of(change[0])))

    def _remove(self, time: int, item: Any) -> bool:
        name, value = pair(item, "a session")
        at, wanted = key(name), key(value)
        sessions = self._keys.get(at)
        place = sessions.bisect_right(time) if sessions is not None else 0
        if sessions is None or not place:
            return False
        start = sessions.keys()[place - 1]
        rows = sessions[start]
        values = rows.get(time, [])
        found = next((number for number, each in enumerate(values) if key(each) == wanted), None)
        if found is None:
            return False
        del values[found]
        self._say(self._window(at, start), value, -1)
        if not values:
            del rows[time]
            self._part(at, start, time)
        return True

    def _part(self, at: Hashable, start: int, time: int) -> None:
        """Mends a session from which the last item of a time has gone."""
        sessions = self._keys[at]
        rows = sessions[start]
        if not rows:
            del sessions[start]
            self._forget_empty(at)
            return
        place = rows.bisect_right(time)
        after = rows.keys()[place] if place < len(rows) else None
        before = rows.keys()[place - 1] if place else None
        if after is None:
            self._look_at(at, start, rows.keys()[-1])
        elif before is None or after - before >= self.gap:
            self._move(at, start, after, since=after)

    def _move(self, at: Hashable, old: int, new: int, since: int | None = None) -> None:
        """Gives the items of a session, from a time on, to the session that begins at another time."""
        sessions = self._keys[at]
        rows = sessions[old]
        times = list(rows if since is None else rows.irange(since))
        target = sessions.get(new)
        if target is None:
            target = sessions[new] = SortedDict()
        for time in times:
            values = target[time] = rows.pop(time)
            for value in values:
                self._say(self._window(at, old), value, -1)
                self._say(self._window(at, new), value, 1)
        if rows:
            self._look_at(at, old, rows.keys()[-1])
        else:
            del sessions[old]
        self._look_at(at, new, target.keys()[-1])

    def _window(self, at: Hashable, start: int) -> Any:
        return self._names[at], self._shown(start)

    def _look_at(self, at: Hashable, start: int, newest: int) -> None:
        heappush(self._ends, (newest + self.gap, next(self._order), start, at))

    def _end(self, watermark: int) -> None:
        ends = self._ends
        while ends and ends[0][0] <= watermark:
            _, _, start, at = heappop(ends)
            rows = self._keys.get(at, {}).get(start)
            if rows is None:  # it has joined another
                continue
            newest = rows.keys()[-1]
            if newest + self.gap > watermark:
                self._look_at(at, start, newest)
                continue
            items = [(value, 1) for values in rows.values() for value in values]
            self._complete(newest + self.gap, self._window(at, start), items)
            del self._keys[at][start]
            self._forget_empty(at)

    def _forget_empty(self, at: Hashable) -> None:
        if not self._keys[at]:
            del self._keys[at], self._names[at]

    def _next_end(self) -> int:
        return self._ends[0][0] if self._ends else NEVER

    def size(self) -> int:
        sessions = [rows for known in self._keys.values() for rows in known.values()]
        return sum([len(values) for rows in sessions for values in rows.values()]) + super().size()

    def _oldest(self, item: Any) -> int | None:
        name, value = pair(item, "a session")
        wanted = key(value)
        for rows in self._keys.get(key(name), {}).values():
            for time, values in rows.items():
                if any(key(each) == wanted for each in values):
                    return int(time)
        return None
