"""The source document, section by section: where theory and code part, this file says where.

"Efficient, Imperative Dataspaces for Conversational Concurrency", 20 October 2018, revised 2019 and 2024.
Headings below are its headings.
"""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from index.errors import UsageError
from index.patterns.events import Restricted
from index.patterns.patterns import DISCARD, capture, discard, exact, observe, skeleton
from index.patterns.readers import handler_code
from index.patterns.skeletons import Check, CheckKind
from index.patterns.text import parse, parse_pattern
from index.trie.tree import reached
from index.trie.trie import Event, Index
from index.values.positions import MISSING, Path, apply, class_of, compute, project, to_moves, to_paths, visit
from index.values.values import COMPILED, Record, Value
from tests.index.strategies import patterns


class _Facet:
    """An event handler that writes down what it is told."""

    def __init__(self, index: Index, pattern: str) -> None:
        self.skeleton = skeleton(parse_pattern(pattern))
        self._heard: list[str] = []
        index.add_handler(self.skeleton, self)

    def __call__(self, event: Event, captures: tuple[Value, ...]) -> None:
        self._heard.append(" ".join([event.value, *map(repr, captures)]))

    def heard(self) -> list[str]:
        heard, self._heard = self._heard, []
        return heard


# -- Constructing assertions; Assertions of interest --------------------------------------------------


def test_an_interest_is_an_assertion_whose_argument_is_the_pattern() -> None:
    assert parse('Observe(speak("Alice", _))') == observe(Record("speak", "Alice", DISCARD))


def test_discard_asks_whether_and_capture_asks_which() -> None:
    index = Index()
    any_user, each_user = _Facet(index, "present(_)"), _Facet(index, "present($)")
    for name in ("Alice", "Bob"):
        index.add(Record("present", name))
    assert any_user.heard() == ["+"]
    assert each_user.heard() == ["+ 'Alice'", "+ 'Bob'"]


def test_who_says_what_and_who_speaks() -> None:
    index = Index()
    who_says_what, who_speaks = _Facet(index, "speak($, $)"), _Facet(index, "speak($, _)")
    for text in ("Hello!", "Bye!"):
        index.send(Record("speak", "Alice", text))
    assert who_says_what.heard() == ["! 'Alice' 'Hello!'", "! 'Alice' 'Bye!'"]
    assert who_speaks.heard() == ["! 'Alice'", "! 'Alice'"]
    for text in ("Hello!", "Bye!"):  # as assertions, the second is no news to the second observer
        index.add(Record("speak", "Alice", text))
    assert who_says_what.heard() == ["+ 'Alice' 'Hello!'", "+ 'Alice' 'Bye!'"]
    assert who_speaks.heard() == ["+ 'Alice'"]


# -- Patterns; Skeletons ------------------------------------------------------------------------------

EXAMPLE = "x(y(3, 4), $v, z(_, w(), _), _)"
K = skeleton(parse_pattern(EXAMPLE))


def test_the_skeleton_of_the_example() -> None:
    assert K.shape == (((), "x"), ((0,), "y"), ((2,), "z"), ((2, 1), "w"))
    assert K.constants == (((0, 0), 3), ((0, 1), 4))
    assert K.checks == tuple([Check(CheckKind.HAS, path) for path in [(2, 0), (2, 2), (3,)]])
    assert (K.captures, K.names) == (((1,),), ("v",))


# -- From pattern shapes to tries of moves ------------------------------------------------------------

paths = st.lists(st.integers(0, 3), max_size=4).map(tuple)


def test_the_shape_visit_of_the_example() -> None:
    assert visit(K.shape) == [((0, ()), "x"), ((0, (0,)), "y"), ((1, (2,)), "z"), ((0, (1,)), "w")]


@given(paths, paths)
def test_a_computed_move_leads_there(here: Path, there: Path) -> None:
    up, down = compute(there, here)
    assert apply(here, (up, down)) == there
    assert not (up and down and here[len(here) - up] == down[0])  # it goes no further up than it must


@given(st.lists(paths))
def test_absolute_and_relative_visits_are_interconvertible(visited: list[Path]) -> None:
    assert to_paths(to_moves(visited)) == visited


@given(patterns)
def test_lemma_every_move_but_the_first_is_one_step_leafward(pattern: Value) -> None:
    moves = [move for move, _ in visit(skeleton(pattern).shape)]
    assert moves[:1] in ([], [(0, ())])
    assert all(len(down) == 1 for _, down in moves[1:])


@given(patterns)
def test_lemma_a_shape_has_all_and_only_the_interior_nodes(pattern: Value) -> None:
    form = skeleton(pattern)
    shape = dict(form.shape)
    leaves = (
        [path for path, _ in form.constants] + [check.path for check in form.checks] + list(form.captures)
    )
    for path in [*shape, *leaves]:
        assert all(path[:depth] in shape for depth in range(len(path)))


# -- Adding and removing event handlers ---------------------------------------------------------------

VALUE = parse("x(y(3, 4), 5, z(6, w(), 7), 8)")


def test_project_and_project_many() -> None:
    assert project(VALUE, ()) is VALUE
    assert project(VALUE, (2, 1)) == Record("w")
    assert project(VALUE, (2, 3)) is MISSING and project(VALUE, (1, 0)) is MISSING
    assert handler_code(K.shape, ((1,), (0, 1))).read(VALUE) == (5, 4)
    assert handler_code(K.shape, ((1,), (9,))).read(VALUE) is None


def test_classof_is_the_label_and_undefined_for_atoms() -> None:
    assert class_of(VALUE) == "x"
    assert class_of(5) is None


def test_extend_lays_the_shape_out_as_nodes_that_share_their_beginning() -> None:
    index = Index()
    _Facet(index, EXAMPLE)
    assert index.statistics().nodes == 5  # the root, x, y, z, w
    _Facet(index, "x(y(1), z())")
    assert index.statistics().nodes == 6  # one more z, at another place


def test_the_example_step_by_step() -> None:
    index, before = Index(), Index()
    before.add(VALUE)
    late = _Facet(before, EXAMPLE)
    assert late.heard() == ["+ 5"]  # told of what is there already

    facet = _Facet(index, EXAMPLE)
    assert len(reached(index._tops["x"], VALUE)) == 4
    index.add(VALUE)
    assert facet.heard() == ["+ 5"]
    for other in (
        "x(y(3, 4), 5, z(6, w(), 7))",  # [3] is missing
        "x(y(3, 4), 5, z(6, w()), 8)",  # [2, 2] is missing
        "x(y(3, 5), 5, z(6, w(), 7), 8)",  # [0, 1] is another constant
        "x(y(3), 5, z(6, w(), 7), 8)",  # [0, 1] is not there at all
        "x(y(3, 4), 5, z(6, v(), 7), 8)",  # [2, 1] is of another class
        "x(y(3, 4), 5, z(6, 7, 7), 8)",  # [2, 1] has no class
        "y(y(3, 4), 5, z(6, w(), 7), 8)",
    ):
        index.add(parse(other))
        assert facet.heard() == []
    index.add(parse("x(y(3, 4, 0), 5, z(1, w(2), 3, 4), 5, 6)"))  # at-least arity everywhere, again a 5
    assert facet.heard() == []
    index.send(parse("x(y(3, 4), 9, z(6, w(), 7), 8)"))
    assert facet.heard() == ["! 9"]
    index.remove(VALUE)
    assert facet.heard() == []  # the other one still says 5
    index.remove(parse("x(y(3, 4, 0), 5, z(1, w(2), 3, 4), 5, 6)"))
    assert facet.heard() == ["- 5"]
    index.check()


def test_the_trie_that_our_own_document_draws() -> None:
    index = Index()
    a, b, c = [_Facet(index, pattern) for pattern in ('speak("Alice", $)', "speak($, _)", EXAMPLE)]
    drawn = index.statistics()
    assert (drawn.nodes, drawn.groups, drawn.leaves, drawn.handlers) == (6, 3, 3, 3)
    index.add(parse('speak("Alice", "hi")'))
    assert (a.heard(), b.heard()) == (["+ 'hi'"], ["+ 'Alice'"])
    index.add(parse('speak("Alice", "bye")'))
    assert (a.heard(), b.heard()) == (["+ 'bye'"], [])
    index.remove(parse('speak("Alice", "hi")'))
    assert (a.heard(), b.heard()) == (["- 'hi'"], [])
    index.remove(parse('speak("Alice", "bye")'))
    assert (a.heard(), b.heard(), c.heard()) == (["- 'bye'"], ["- 'Alice'"], [])


def test_add_handler_invokes_once_for_each_distinct_sequence_of_captures() -> None:
    index = Index()
    for text in ("p(1, 1)", "p(1, 2)", "p(2, 1)"):
        index.add(parse(text))
    assert _Facet(index, "p($, _)").heard() == ["+ 1", "+ 2"]


def test_remove_handler_parts_from_the_document_in_pruning_shapes_too() -> None:
    index = Index()
    index.add(VALUE)
    new = index.statistics()
    facet = _Facet(index, EXAMPLE)
    index.remove_handler(facet.skeleton, facet)
    assert index.statistics() == new


def test_remove_handler_parts_from_the_document_in_refusing_what_is_not_there() -> None:
    index = Index()
    facet = _Facet(index, EXAMPLE)
    index.remove_handler(facet.skeleton, facet)
    with pytest.raises(UsageError, match="not installed"):
        index.remove_handler(facet.skeleton, facet)


# -- Adding assertions, removing assertions and sending messages --------------------------------------


def test_a_leaf_is_found_by_whoever_comes_for_its_constants_later() -> None:
    index = Index()
    _Facet(index, 'p("Alice", $)')  # makes the table of constants...
    index.add(Record("p", "Bob", 1))  # ...in which this is kept, although nobody wants it...
    assert _Facet(index, 'p("Bob", $)').heard() == ["+ 1"]  # ...yet


def test_assertions_are_a_bag_of_which_the_first_and_the_last_copy_are_seen() -> None:
    index = Index()
    facet = _Facet(index, "p($)")
    assert [index.add(Record("p", 1)) for _ in range(2)] == [True, False]
    assert [index.remove(Record("p", 1)) for _ in range(2)] == [False, True]
    assert facet.heard() == ["+ 1", "- 1"]


def test_removing_what_is_absent_parts_from_the_document_in_being_refused() -> None:
    index = Index()
    facet = _Facet(index, "p($)")
    with pytest.raises(UsageError):
        index.remove(Record("p", 1))  # the document would count to -1
    index.add(Record("p", 1))
    assert facet.heard() == ["+ 1"]


def test_a_patch_that_replaces_does_not_glitch() -> None:
    index = Index()
    facet = _Facet(index, "[_]")
    index.add((3,))
    assert facet.heard() == ["+"]
    index.patch([(4,)], [(3,)])
    assert facet.heard() == []


def test_a_message_reaches_handlers_and_no_cache() -> None:
    index = Index()
    facet = _Facet(index, EXAMPLE)
    index.send(VALUE)
    assert facet.heard() == ["! 5"]
    assert (len(index), index.matches(facet.skeleton)) == (0, [])


# -- Variations ---------------------------------------------------------------------------------------


def test_exact_arity_matching() -> None:
    index = Index()
    facet = _Facet(index, "exact(p($))")
    index.send(Record("p", 1, 2))
    index.send(Record("p", 1))
    assert facet.heard() == ["! 1"]
    assert skeleton(exact(Record("p", capture()))).checks == (Check(CheckKind.SIZE, (), 1),)


def test_matching_atom_classes() -> None:
    index = Index()
    facet = _Facet(index, "p($n:int)")
    for value in (1, 1.0, True, "1"):
        index.send(Record("p", value))
    assert facet.heard() == ["! 1"]
    assert skeleton(discard("int")).checks == (Check(CheckKind.CLASS, (), "int"),)


# -- Potential future optimizations; TODO -------------------------------------------------------------


@pytest.mark.skipif(COMPILED, reason="machine code walks")
def test_jit_compilation_of_shapes_constant_checks_and_captures() -> None:
    assert handler_code(K.shape, K.captures).read.__code__.co_filename.startswith("<index text ")


def test_the_cleanup_function_of_a_handler_gets_what_is_left_over() -> None:
    index, left = Index(), []
    form = skeleton(Record("p", capture()))

    def relay(event: Event, captures: tuple[Value, ...]) -> None:
        left.append((event, captures))

    index.add(Record("p", 1))
    index.add_handler(form, relay, cleanup=lambda rows: left.extend([(Event.REMOVED, row) for row in rows]))
    index.remove_handler(form, relay)
    assert left == [(Event.ADDED, (1,)), (Event.REMOVED, (1,))]


def test_a_visibility_restriction_reaches_those_who_capture_at_most_as_much_as_the_outer_endpoint() -> None:
    index = Index()
    inner = {text: _Facet(index, text) for text in ("p($, _)", "p($, $)", "p(_, _)", "p(_, $)")}
    outer = skeleton(parse_pattern("p($, _)"))
    index.add(Restricted(Record("p", 1, "not to be relied on"), frozenset(outer.captures)))
    assert {text: facet.heard() for text, facet in inner.items()} == {
        "p($, _)": ["+ 1"],
        "p($, $)": [],
        "p(_, _)": ["+"],
        "p(_, $)": [],
    }


# -- Footnotes ----------------------------------------------------------------------------------------


def test_note_1_a_capture_has_a_pattern_of_its_own() -> None:
    index = Index()
    facet = _Facet(index, "p($(q($, _)))")
    index.send(parse("p(q(1, 2))"))
    index.send(parse("p(3)"))
    assert facet.heard() == ["! Record('q', 1, 2) 1"]


def test_note_2_callbacks_are_told_apart_by_their_own_equality() -> None:
    index, heard = Index(), []
    form = skeleton(Record("p", capture()))
    for one in (lambda _event, _row: heard.append(1), lambda _event, _row: heard.append(2)):
        index.add_handler(form, one)
    index.send(Record("p", 0))
    assert heard == [1, 2]
