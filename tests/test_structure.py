"""The figures of the sources do not get worse: each limit is the figure of today, and may only fall."""

from __future__ import annotations

import ast
from dataclasses import fields
from typing import Final

import pytest

from dataspace.kernel.limits import SpaceLimits
from server.config.model import Limits, Slow, Web
from server.config.principals import Quotas
from tests import budgets, structure
from tests.sources import FUNCTIONS, File, code_lines, files, header_lines, product, statements
from tests.walks import walked

LONELY_PROTOCOLS: Final = 0
"""Protocols with one implementation in the product and no fake in a test: users can import the class."""

SINGLE_PROTOCOLS: Final = 7
"""Protocols with one implementation in the product, whether or not a test has a fake."""

OUTSIDE: Final = {"groups": 3, "topics": 15, "archive": 3, "cluster": 4}
"""Files of a wing, or that import it, outside of its folder and of the client."""

LARGEST_OBJECTS: Final = (44, 35, 32)
"""Attributes of the largest classes of the server, with their bases."""

FLOORS: Final = 10
BUDGET_SLACK: Final = 0.02

NAMES_TWICE: Final = 3
LONG_SIGNATURES: Final = 7
MARKDOWN_WORDS: Final = 115_000
WALKS: Final = {"fact": 69, "replay": 85, "HTTP observe": 95}
"""Two files of an event stream are met where the daemon writes before it sees that the client has closed."""

SLACK: Final = 0.05
"""By how much a figure may be better than its limit before the limit must follow."""

WALK_SLACK: Final = 0.1
"""The same for walks, which vary by some files with the load of the machine."""

MOST_CODE: Final = 400
"""Lines of code in a file, without docstrings, comments and empty lines."""

LONG_FILES: Final[dict[str, str]] = {
    "dataspace/client/jobs.py": "a job and its member, of which neither is read without the other",
    "dataspace/client/space.py": "what a program does with a space, a method for each",
    "dataspace/client/session/session.py": "what is under way over one connection after another",
    "server/cli/table.py": "a row for each command",
    "server/spaces/space.py": "the one way into a space, and what begins and ends with it",
}
"""Files with more code, and why."""

MOST_FILES: Final = 15
FULL_ROOMS: Final[dict[str, str]] = {"dataspace": "eight of its files are faces, which only re-export names"}
"""Rooms with more files, and why."""


def hold(figure: int, limit: int, name: str, wrong: object = "", slack: float = SLACK) -> None:
    """Fails if a figure is above its limit, or so far below that the limit is no longer one."""
    assert figure <= limit, (
        f"{name} rose from {limit} to {figure}: raise it only with a reason in the commit {wrong}"
    )
    assert figure >= limit - max(3, slack * limit), (
        f"{name} fell to {figure}: lower its limit ({limit}) to that"
    )


def test_a_protocol_has_two_implementations_or_a_fake() -> None:
    lonely = [each.place for each in structure.ports() if each.lonely]
    hold(len(lonely), LONELY_PROTOCOLS, "LONELY_PROTOCOLS", lonely)


def test_protocols_of_one_class_are_few() -> None:
    """A fake of a test is no reason for a Protocol."""
    single = [each.place for each in structure.ports() if each.single]
    hold(len(single), SINGLE_PROTOCOLS, "SINGLE_PROTOCOLS", single)


@pytest.mark.parametrize("name", budgets.budgets())
def test_the_core_and_each_wing_have_a_budget(name: str) -> None:
    code, most = budgets.code()[name], budgets.budgets()[name].code
    hold(code, most, f"the budget of {name} in tests/budgets.py", slack=BUDGET_SLACK)


def test_every_place_of_a_budget_is_there() -> None:
    names = [each.name for each in product()]
    places = [place for each in budgets.budgets().values() for place in each.places]
    assert not [place for place in places if not any(name.startswith(place) for name in names)]


@pytest.mark.parametrize(("wing", "limit"), OUTSIDE.items())
def test_a_wing_lies_in_its_folder(wing: str, limit: int) -> None:
    outside = budgets.outside(wing)
    hold(len(outside), limit, f"OUTSIDE[{wing!r}]", outside)


def test_objects_are_small() -> None:
    largest = structure.large_objects()
    for (count, name), limit in zip(largest, LARGEST_OBJECTS, strict=False):
        hold(count, limit, "LARGEST_OBJECTS", name)


def test_the_server_has_few_floors() -> None:
    hold(structure.floors(), FLOORS, "FLOORS")


def test_a_public_class_name_stands_for_one_thing() -> None:
    twice = structure.names_used_twice()
    hold(len(twice), NAMES_TWICE, "NAMES_TWICE", twice)


def test_functions_have_few_parameters() -> None:
    found = structure.long_signatures()
    hold(len(found), LONG_SIGNATURES, "LONG_SIGNATURES", found)


def test_documents_do_not_grow() -> None:
    words = structure.markdown_words()
    hold(sum(words.values()), MARKDOWN_WORDS, "MARKDOWN_WORDS", "see `python -m tests.structure words`")


def test_files_are_short() -> None:
    code = {each.name: code_lines(each) for each in product()}
    long = {name: lines for name, lines in code.items() if lines > MOST_CODE and name not in LONG_FILES}
    assert not long, f"more than {MOST_CODE} lines of code: divide these, or say in LONG_FILES why not"


def test_rooms_are_small() -> None:
    sizes = structure.room_sizes()
    assert not {name: count for name, count in sizes.items() if count > MOST_FILES and name not in FULL_ROOMS}
    assert FULL_ROOMS.keys() <= sizes.keys()


def test_every_limit_is_read_by_the_product() -> None:
    """A limit that only the configuration knows has no effect; rates are read by ``accounts`` as text."""
    read = {
        name
        for file in product()
        if not file.name.startswith("server/config/") and file.name != "server/daemon/reloading.py"
        for node in ast.walk(file.tree)
        for name in (
            [node.attr]
            if isinstance(node, ast.Attribute)
            else [node.value]
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            else []
        )
    }
    known = [each.name for kind in (Limits, SpaceLimits, Quotas, Web, Slow) for each in fields(kind)]
    assert not [name for name in known if name.removesuffix("_per_second") not in read]


def test_every_test_does_something() -> None:
    empty = [
        f"{each.name}: {node.name}"
        for each in files("tests")
        for node in statements(each.tree)
        if isinstance(node, FUNCTIONS)
        and node.name.startswith("test_")
        and all(isinstance(step, ast.Pass | ast.Expr) and not _calls(step) for step in node.body)
    ]
    assert not empty


def _calls(step: ast.stmt) -> bool:
    return any(isinstance(node, ast.Call) for node in ast.walk(step))


@pytest.mark.slow
async def test_a_request_goes_through_few_files() -> None:
    fewest = await walked()
    for _ in range(6):  # beside other work the daemon's periodic work may fall into every round
        if all(len(passed) <= WALKS[name] for name, passed in fewest.items()):
            break
        fewest = {name: fewest[name] & passed for name, passed in (await walked()).items()}
    for name, passed in fewest.items():
        hold(len(passed), WALKS[name], f"WALKS[{name!r}]", sorted(passed), WALK_SLACK)


# -- the counting itself ---------------------------------------------------------------------------


def source(text: str) -> File:
    return File("index/some.py", text, ast.parse(text))


def test_code_is_counted_without_docstrings_comments_and_empty_lines() -> None:
    text = '"""Doc\n\nmore."""\n\nX = 1\n"""Of X."""\n# why\ndef f():\n    """Doc."""\n    return X  # this\n'
    assert code_lines(source(text)) == 3


def test_headers_are_the_docstring_and_all_imports_at_the_top() -> None:
    text = '"""Doc."""\n\nimport ast\nfrom x import (\n    y,\n)\nif TYPE_CHECKING:\n    import z\nX = 1\n'
    assert header_lines(source(text)) == 1 + 1 + 3 + 2


@pytest.mark.parametrize(
    ("signature", "count"),
    [("self, a, b", 2), ("a, *, b, c=1", 2), ("a, /, b=1, *more, **others", 2), ("cls", 0), ("a, self", 2)],
)
def test_parameters_are_those_that_a_caller_must_know(signature: str, count: int) -> None:
    (function,) = ast.parse(f"def f({signature}): ...").body
    assert isinstance(function, ast.FunctionDef)
    assert structure.parameters(function) == count


def test_an_implementation_has_all_members_and_takes_the_same_arguments() -> None:
    port = found("class Port(Protocol):\n    n: int\n    def put(self, a: int, b: str) -> None: ...")
    whole = found("class A:\n    def __init__(self):\n        self.n = 1\n    def put(self, a, b, c=1): pass")
    assert structure.implements(whole, whole.members, port, port.members)
    for wrong in (
        "class A:\n    n = 1",
        "class A:\n    n = 1\n    def put(self, a): pass",
        "class A:\n    n = 1\n    def put(self, a, b, c): pass",
        "class A:\n    n = 1\n    async def put(self, a, b): pass",
        "class A:\n    n = 1\n    def put(self, a: str, b: str): pass",
        "class A:\n    def n(self): pass\n    def put(self, a, b): pass",
    ):
        other = found(wrong)
        assert not structure.implements(other, other.members, port, port.members), wrong


def found(text: str) -> structure.Class:
    file = source(text)
    (node,) = file.tree.body
    assert isinstance(node, ast.ClassDef)
    return structure.read_class(file, node)
