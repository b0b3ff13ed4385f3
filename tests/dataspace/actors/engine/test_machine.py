"""Random programs of facets, fields, conversations, spawns and links do what a simple model of them does.

The model is a tree of names.  After each step the facts in the space, the children of each facet, what stop
actions ran, and what an observer was told are compared with it.  ``TORTURE_ROUNDS`` makes it longer.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from dataspace.actors.engine.actors import Actor, Call
from dataspace.actors.engine.fields import Field
from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.testing import Room
from index.patterns.patterns import capture

Held = record("held", "node", "value")
Echo = record("echo", "node", "value")
ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "1"))


class Node:
    """A facet in the model, and the facet that it stands for."""

    def __init__(self, name: int, parent: Node | None, actor: Tenant) -> None:
        self.name = name
        self.parent = parent
        self.actor = actor
        self.children: list[Node] = []
        self.value = 0
        self.live = True
        self.turn: Turn
        self.field: Field[int]
        if parent is not None:
            parent.children.append(self)

    def family(self) -> list[Node]:
        """This one and all below it, children before their parent."""
        return [node for child in self.children for node in child.family()] + [self]


class Tenant:
    """An actor in the model: its tree, who is linked to it, and the actor that it stands for."""

    def __init__(self) -> None:
        self.root: Node
        self.real: Actor
        self.live = True
        self.linked: list[tuple[Node, Tenant]] = []
        """Facets of others whose end ends this, and that its end stops."""


class Program(RuleBasedStateMachine):
    """Steps of several actors, each in a turn of its own."""

    nodes = Bundle("nodes")

    def __init__(self) -> None:
        super().__init__()
        self.room = Room(strict=False)
        self.count = 0
        self.all: list[Node] = []
        self.tenants: list[Tenant] = []
        self.stopped: list[int] = []
        """Stop actions that ran, in order."""
        self.expected: list[int] = []
        self.exits: list[tuple[Tenant, bool]] = []
        self.expected_exits: list[tuple[Tenant, bool]] = []
        self.heard: set[tuple[object, ...]] = set()
        self.faults: list[str] = []
        self.room.spawn(self.ear, name="ear")
        self.room.spawn(self.echo, name="echo")
        self.room.run()

    # -- actors that watch ----------------------------------------------------------------------------

    def ear(self, turn: Turn) -> None:
        """Keeps what it is told; additions of what is there and removals of what is not are faults."""

        def gain(turn: Turn, *row: object) -> None:
            if row in self.heard:
                self.faults.append(f"told twice of {row}")
            self.heard.add(row)

        def lose(turn: Turn, *row: object) -> None:
            if row not in self.heard:
                self.faults.append(f"told of the end of {row}")
            self.heard.discard(row)

        turn.observe(Held(capture(), capture()), added=gain, removed=lose)

    def echo(self, turn: Turn) -> None:
        """A facet for each fact, that says it again."""
        turn.during(Held(capture(), capture()))(lambda turn, *row: turn.assert_(Echo(*row)))

    # -- what a facet is ------------------------------------------------------------------------------

    def make(self, parent: Node | None, actor: Tenant) -> Node:
        self.count += 1
        node = Node(self.count, parent, actor)
        self.all.append(node)
        return node

    def set_up(self, turn: Turn, node: Node) -> None:
        """A facet that holds a fact computed from a field, and takes down its end."""
        node.turn = turn
        node.field = cell = turn.field("value", 0)
        double = turn.derived("double", lambda: cell.value * 2)
        turn.assert_(lambda: Held(node.name, double.value), when=lambda: cell.value >= 0)
        turn.on_stop(lambda turn: self.stopped.append(node.name))

    def boot(self, turn: Turn, tenant: Tenant) -> None:
        turn.on_exit(lambda crash: self.exits.append((tenant, crash is not None)))
        self.set_up(turn, tenant.root)

    def enter(self, node: Node, script: Callable[[Turn], object], *, fail: bool = False) -> None:
        """One turn of the node's facet."""

        def run(turn: Turn) -> None:
            script(node.turn)
            if fail:
                raise RuntimeError("on purpose")

        self.room.engine.enqueue(Call(node.turn.facet, "step", run))
        self.room.run()

    # -- what the model does --------------------------------------------------------------------------

    def model_stop(self, node: Node) -> None:
        """A facet stops in good order, and all below it before."""
        if node.live:
            family = node.family()
            for each in family:
                each.live = False
                self.expected.append(each.name)
            if node.parent is not None:
                node.parent.children.remove(node)
            self.after_end(family)
            if node.parent is None:
                self.model_exit(node.actor, crashed=False)

    def model_exit(self, tenant: Tenant, *, crashed: bool) -> None:
        tenant.live = False
        self.expected_exits.append((tenant, crashed))
        for facet, _ in tenant.linked:
            self.model_stop(facet)

    def model_crash(self, tenant: Tenant) -> None:
        family = [node for node in tenant.root.family() if node.live]
        for node in family:
            node.live = False
        self.model_exit(tenant, crashed=True)
        self.after_end(family)

    def after_end(self, ended: list[Node]) -> None:
        """Actors that are linked to facets that have ended."""
        for other in self.tenants:
            if other.live and any(facet in ended for facet, _ in other.linked):
                self.model_stop(other.root)

    # -- steps ----------------------------------------------------------------------------------------

    @initialize(target=nodes)
    def first(self) -> Node:
        return self.start()

    @rule(target=nodes)
    def another(self) -> Node:
        return self.start()

    def start(self) -> Node:
        """An actor that nobody has spawned."""
        tenant = Tenant()
        tenant.root = self.make(None, tenant)
        self.tenants.append(tenant)
        tenant.real = self.room.spawn(self.boot, tenant)
        self.room.run()
        return tenant.root

    @rule(target=nodes, parent=nodes, fail=st.booleans())
    def react(self, parent: Node, fail: bool) -> Node | object:
        if not parent.live:
            return multiple()
        node = self.make(parent, parent.actor)
        self.enter(parent, lambda turn: turn.react(self.set_up, node), fail=fail)
        if fail:
            self.forget(node)
            self.model_crash(parent.actor)
            return multiple()
        return node

    @rule(target=nodes, parent=nodes, linked=st.booleans(), fail=st.booleans())
    def spawn(self, parent: Node, linked: bool, fail: bool) -> Node | object:
        if not parent.live:
            return multiple()
        tenant = Tenant()
        tenant.root = self.make(None, tenant)

        def script(turn: Turn) -> None:
            tenant.real = (turn.spawn_link if linked else turn.spawn)(self.boot, tenant)

        self.enter(parent, script, fail=fail)
        if fail:
            self.forget(tenant.root)
            self.model_crash(parent.actor)
            return multiple()
        self.tenants.append(tenant)
        if linked:
            tenant.linked.append((parent, tenant))
        return tenant.root

    def forget(self, node: Node) -> None:
        """What a failed turn made never was."""
        node.live = False
        self.all.remove(node)
        if node.parent is not None:
            node.parent.children.remove(node)

    @rule(node=nodes, values=st.lists(st.integers(-1, 3), min_size=1, max_size=4), fail=st.booleans())
    def write(self, node: Node, values: list[int], fail: bool) -> None:
        """Several writes in one turn: only the last one is seen."""
        if not node.live:
            return

        def script(turn: Turn) -> None:
            for each in values:
                node.field.value = each

        self.enter(node, script, fail=fail)
        if fail:
            self.model_crash(node.actor)
        else:
            node.value = values[-1]

    @rule(node=nodes, fail=st.booleans())
    def stop(self, node: Node, fail: bool) -> None:
        if not node.live:
            return
        self.enter(node, lambda turn: turn.stop(), fail=fail)
        if fail:
            self.model_crash(node.actor)
        else:
            self.model_stop(node)

    @rule(target=nodes, node=consumes(nodes))
    def stop_into_another(self, node: Node) -> Node | object:
        """A state machine's step: the continuation opens the next facet beside, in the same turn."""
        if not node.live or node.parent is None:
            return multiple()
        parent = node.parent
        made = self.make(parent, node.actor)
        parent.children.remove(made)  # it comes after the end of the other
        self.enter(node, lambda turn: turn.stop(then=lambda outer: outer.react(self.set_up, made)))
        parent.children.append(made)
        self.model_stop(node)
        return made

    @rule(one=nodes, other=nodes)
    def stop_two_at_once(self, one: Node, other: Node) -> None:
        """Whichever is above the other, each stops once."""
        if not (one.live and other.live and one.actor is other.actor):
            return

        def script(turn: Turn) -> None:
            turn.stop(other.turn.facet)
            turn.stop(one.turn.facet)

        self.enter(one, script)
        self.model_stop(other)
        self.model_stop(one)

    @rule(node=nodes, commits=st.booleans())
    def hook(self, node: Node, commits: bool) -> None:
        """A hook before the commit sees what the turn did, and may fail it."""
        if not node.live:
            return

        def check(turn: Turn) -> None:
            assert node.field.value == 2
            if not commits:
                raise RuntimeError("not this")

        def script(turn: Turn) -> None:
            turn.before_commit(check)
            node.field.value = 2

        self.enter(node, script)
        if commits:
            node.value = 2
        else:
            self.model_crash(node.actor)

    # -- what always holds ----------------------------------------------------------------------------

    @invariant()
    def the_space_holds_what_the_model_does(self) -> None:
        held = {(node.name, 2 * node.value) for node in self.all if node.live and node.value >= 0}
        assert self.heard == held and not self.faults
        assert set(self.room.matches(Held(capture(), capture()))) == held
        assert set(self.room.matches(Echo(capture(), capture()))) == held
        self.room.home.space.index.check()

    @invariant()
    def stop_actions_ran_once_each_children_first(self) -> None:
        assert sorted(self.stopped) == sorted(self.expected)
        order = {name: at for at, name in enumerate(self.stopped)}
        for node in self.all:
            if node.parent is not None and node.name in order and node.parent.name in order:
                assert order[node.name] < order[node.parent.name]

    @invariant()
    def each_end_of_an_actor_was_told_once(self) -> None:
        def counted(exits: list[tuple[Tenant, bool]]) -> list[tuple[int, bool]]:
            return sorted((tenant.root.name, crashed) for tenant, crashed in exits)

        assert counted(self.exits) == counted(self.expected_exits)
        for tenant in self.tenants:
            assert tenant.real.ended is not tenant.live
            claims = self.room.home.space.claims(tenant.real.owner)
            assert tenant.live or not claims

    @invariant()
    def facets_are_those_of_the_model(self) -> None:
        for tenant in self.tenants:
            if tenant.live:
                assert tenant.real.facets == 1 + len(tenant.root.family())


Program.TestCase.settings = settings(max_examples=20 * ROUNDS, stateful_step_count=30, deadline=None)
TestProgram = pytest.mark.slow(pytest.mark.torture(Program.TestCase))
