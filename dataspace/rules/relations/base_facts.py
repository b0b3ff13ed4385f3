"""Base facts: the facts that are claimed, and the views of them that no rule derives.

All components of a program read the same base facts: two rules that read the same pattern share its view and
the indexes of that, also if nothing else connects them.  Facts are kept by class, so that a rule which comes
late reads only facts that it can match; a fact that comes or goes finds the views and engines of its class by
one look-up.

Always: a view of base facts holds exactly the rows of the claimed facts, and during a tick also the rows of
its messages; views and indexes that no engine reads are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from dataspace.rules.relations.relations import Columns, Fenced
from dataspace.rules.relations.tables import write_plain
from dataspace.rules.relations.terms import Terms
from dataspace.rules.relations.views import View
from index.values.positions import Class, class_of
from index.values.values import Record, Value, key

Claim: TypeAlias = Callable[[Value, int], None]


@dataclass(frozen=True, slots=True)
class Use:
    """What an engine keeps for a view of base facts: the functions that get its rows, and its indexes."""

    on_insert: list[Fenced]
    on_delete: list[Fenced]
    columns: set[Columns]


_R = TypeVar("_R")
"""An engine, which reads some facts and gets their changes."""


class _Route(Generic[_R]):
    """The facts of one class with the views and engines that get them, or the receivers of all facts.

    ``own`` are for the facts that are rows of an engine's own relations.
    """

    __slots__ = ("engines", "facts", "own", "plain")

    def __init__(self) -> None:
        self.facts: dict[Hashable, Value] = {}
        self.plain: list[View] = []
        self.engines: dict[_R, None] = {}
        self.own: list[Claim] = []

    def __bool__(self) -> bool:
        return bool(self.facts or self.plain or self.engines)


class BaseFacts(Generic[_R]):
    """Facts by class, and views of them."""

    def __init__(self, terms: Terms | None = None) -> None:
        self.terms = Terms() if terms is None else terms
        self.views: dict[Hashable, View] = {}
        self.read = 0
        """How many facts have been read for rules that came later."""
        self._users: dict[View, dict[_R, Use]] = {}
        self._routes: dict[Class | None, _Route[_R]] = {}
        self._any: _Route[_R] = _Route()
        self._left: set[View] = set()

    # -- facts ----------------------------------------------------------------------------------------

    def keep(self, added: Iterable[Value], removed: Iterable[Value] = ()) -> None:
        """Notes facts as claimed, and no longer, without passing them on; some may be noted already."""
        routes = self._routes
        for value in added:  # written out, as in ``change``: the first rule has all facts of the space kept
            root = (
                value.label if value.__class__ is Record and value.label.__class__ is str else class_of(value)
            )
            route = routes.get(root) or self._route(root)
            route.facts[_place(value) if value.__class__ is not Record else value._text or value.text] = value
        for value in removed:
            self._route(class_of(value)).facts.pop(_place(value), None)

    def change(self, added: Sequence[Value], removed: Sequence[Value]) -> Mapping[_R, None]:
        """Takes facts as claimed, and no longer; returns the engines that got them.

        O(views of its class) for each, and what the rules make of it.  Additions and removals, and the class
        and the place of a fact, are written out: every turn of a fact passes here.
        """
        routes = self._routes
        reached_routes: dict[_Route[_R], None] = {}
        for value in added:
            root = (
                value.label if value.__class__ is Record and value.label.__class__ is str else class_of(value)
            )
            route = routes.get(root)
            if route is None:
                route = routes[root] = _Route()
            route.facts[_place(value) if value.__class__ is not Record else value._text or value.text] = value
            for view in route.plain:
                view.table.take(value, +1)
            for claim in route.own:
                claim(value, +1)
            reached_routes[route] = None
        for value in removed:
            root = (
                value.label if value.__class__ is Record and value.label.__class__ is str else class_of(value)
            )
            route = routes[root]
            del route.facts[_place(value) if value.__class__ is not Record else value._text or value.text]
            for view in route.plain:
                view.table.take(value, -1)
            for claim in route.own:
                claim(value, -1)
            reached_routes[route] = None
            if not (route.facts or route.plain or route.engines):
                del routes[root]
        of_any = self._any
        if of_any.plain or of_any.own:
            for values, by in (added, +1), (removed, -1):
                for value in values:
                    _tell(of_any, value, by)
        if len(reached_routes) == 1 and not of_any.engines:
            (route,) = reached_routes
            return route.engines  # as mostly: no copy
        return {engine: None for route in (*reached_routes, of_any) for engine in route.engines}

    def hear(self, messages: Sequence[Value], by: int) -> Mapping[_R, None]:
        """Takes messages as facts, or ends that; returns the engines that got them.  Equal ones are one."""
        engines = dict(self._any.engines)
        some = messages if len(messages) == 1 else {_place(value): value for value in messages}.values()
        for value in some:
            route = self._routes.get(class_of(value))
            if route is not None:
                _tell(route, value, by)
                engines |= route.engines
            if self._any.plain or self._any.own:
                _tell(self._any, value, by)
        return engines

    def facts(self, root: Class | None) -> Iterator[Value]:
        """Yields the facts of a class, or all where it is None; they count as read."""
        routes = list(self._routes.values()) if root is None else [self._route(root)]
        for route in routes:
            self.read += len(route.facts)
            yield from route.facts.values()

    def look(self, root: Class | None) -> Iterator[Value]:
        """Yields the same for a question; they do not count as read."""
        routes = list(self._routes.values()) if root is None else [self._routes.get(root)]
        for route in routes:
            if route is not None:
                yield from route.facts.values()

    def holds(self, value: Value) -> bool:
        """True if a fact is claimed; O(1)."""
        route = self._routes.get(class_of(value))
        return route is not None and _place(value) in route.facts

    def count(self, roots: Iterable[Class | None]) -> int:
        """Returns how many facts there are of some classes; None stands for all.  O(classes)."""
        routes, chosen = self._routes, set(roots)
        asked = routes.values() if None in chosen else [routes[each] for each in chosen if each in routes]
        return sum(len(route.facts) for route in asked)

    def listening(self, classes: Iterable[Class | None]) -> dict[_R, None]:
        """Returns the engines that get the facts of some classes; O(those)."""
        found = dict(self._any.engines)
        for each in classes:
            if each in self._routes:
                found.update(self._routes[each].engines)
        return found

    def _route(self, of_class: Class | None) -> _Route[_R]:
        route = self._routes.get(of_class)
        if route is None:
            route = self._routes[of_class] = _Route()
        return route

    def _told(self, root: Class | None) -> _Route[_R]:
        """Returns the route of a class, or the route of all facts."""
        return self._any if root is None else self._route(root)

    # -- views ----------------------------------------------------------------------------------------

    def share(self, view: View) -> None:
        """Keeps a view that no rule derives, with the facts there are.  O(facts of its class)."""
        place = key(view.form.pattern)
        if place in self.views:
            return
        self.views[place] = view
        view.is_plain = True
        write_plain(view, self.terms)
        take = view.table.take
        for value in self.facts(view.root):
            take(value, +1)
        self._told(view.root).plain.append(view)

    def attach(
        self, engine: _R, uses: Mapping[View, Use], claims: Iterable[tuple[Class | None, Claim]]
    ) -> None:
        """Passes to an engine from now on what its rules read, or further ones of them.

        The views are shared already; ``uses`` are added to the engine's earlier ones.  O(rows) for an index
        that is new.
        """
        for view, use in uses.items():
            view.on_insert += use.on_insert
            view.on_delete += use.on_delete
            known = self._users.setdefault(view, {}).setdefault(engine, Use([], [], set()))
            known.on_insert.extend(use.on_insert)
            known.on_delete.extend(use.on_delete)
            known.columns.update(use.columns)
            self._told(view.root).engines[engine] = None
            view.fill()
            write_plain(view, self.terms)
        for root, claim in claims:
            route = self._told(root)
            route.own.append(claim)
            route.engines[engine] = None

    def release(self, view: View) -> None:
        """Hands a view to the only engine that reads it, since rules of that show in it from now on."""
        view.is_plain = False
        self._left.discard(view)
        self._give_up(view)

    def detach(self, engine: _R, views: Iterable[View], claims: Iterable[tuple[Class | None, Claim]]) -> None:
        """Passes nothing more to an engine.  Its views stay until ``prune``: a new engine may read them."""
        for view in views:
            use = self._users[view].pop(engine)
            self._told(view.root).engines.pop(engine, None)
            gone = {*use.on_insert, *use.on_delete}
            view.on_insert[:] = [each for each in view.on_insert if each not in gone]
            view.on_delete[:] = [each for each in view.on_delete if each not in gone]
            write_plain(view, self.terms)
            self._left.add(view)
        for root, claim in claims:
            route = self._told(root)
            route.own.remove(claim)
            route.engines.pop(engine, None)
            if root is not None and not route:
                del self._routes[root]

    def prune(self) -> None:
        """Deletes views and indexes that no engine reads any more."""
        for view in self._left:
            users = self._users[view]
            if not users:
                self._give_up(view)
                continue
            wanted = set().union(*[use.columns for use in users.values()])
            if gone := view.indexes.keys() - wanted:
                for columns in gone:
                    del view.indexes[columns]
                write_plain(view, self.terms)
        self._left.clear()

    def _give_up(self, view: View) -> None:
        del self._users[view]
        place, route = key(view.form.pattern), self._told(view.root)
        if self.views.get(place) is view:
            del self.views[place]
            route.plain.remove(view)
        if view.root is not None and not route:
            del self._routes[view.root]

    def forget(self) -> None:
        """Deletes all views at once; engines that are still attached must be made anew."""
        self.views.clear()
        for route in (*self._routes.values(), self._any):
            route.plain.clear()

    def size(self) -> int:
        """Entries in all tables, facts included and the terms left out."""
        facts = sum(len(route.facts) for route in self._routes.values())
        rows = sum(len(view.states) for view in self.views.values())
        return (
            facts
            + rows
            + sum(
                len(bucket)
                for view in self.views.values()
                for index in view.indexes.values()
                for bucket in index.values()
            )
        )


def _tell(route: _Route[_R], value: Value, by: int) -> None:
    for view in route.plain:
        view.table.take(value, by)
    for claim in route.own:
        claim(value, by)


def _place(value: Value) -> Hashable:
    """Returns the key of a fact: its text, as in the index, if it is a record."""
    return value.text if value.__class__ is Record else (key(value),)
