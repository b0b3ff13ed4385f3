"""The figures of the sources do not get worse: each limit is the figure of today, and may only fall."""

from __future__ import annotations

import ast
from dataclasses import fields
from typing import Final

import pytest

from dataspace.kernel.limits import SpaceLimits
from server.config.model import Limits, Slow, Web
from server.config.principals import Quotas
from tests import structure
from tests.walks import walked

LONELY_PROTOCOLS: Final = 0
"""Protocols with one implementation in the product and no fake in a test: users can import the class."""

NAMES_TWICE: Final = 3
LONG_SIGNATURES: Final = 8
PRONOUNS: Final = 0
MARKDOWN_WORDS: Final = 108_400
WALKS: Final = {"fact": 69, "replay": 84, "HTTP observe": 93}
"""Two files of an event stream are met where the daemon writes before it sees that the client has closed."""

SLACK: Final = 0.05
"""By how much a figure may be better than its limit before the limit must follow."""

WALK_SLACK: Final = 0.1
"""The same for walks, which vary by some files with the load of the machine."""

MOST_CODE: Final = 400
"""Lines of code in a file, without docstrings, comments and empty lines."""

LONG_FILES: Final[dict[str, str]] = {
    "dataspace/client/jobs.py": "a job and its member, of which neither is read without the other",
    "dataspace/client/session/session.py": "what is under way over one connection after another",
    "server/spaces/space.py": "the one way into a space, and what begins and ends with it",
}
"""Files with more code, and why."""

MOST_FILES: Final = 15
FULL_ROOMS: Final[dict[str, str]] = {"dataspace": "eight of its files are faces, which only re-export names"}
"""Rooms with more files, and why."""


def hold(figure: int, limit: int, name: str, wrong: object = "", slack: float = SLACK) -> None:
    """Fails if a figure is above its limit, or so far below that the limit is no longer one."""
    assert figure <= limit, f"{name} rose from {limit} to {figure}: {wrong}"
    assert figure >= limit - max(3, slack * limit), (
        f"{name} fell to {figure}: lower its limit ({limit}) to that"
    )


def test_a_protocol_has_two_implementations_or_a_fake() -> None:
    lonely = [each.place for each in structure.ports() if each.lonely]
    hold(len(lonely), LONELY_PROTOCOLS, "LONELY_PROTOCOLS", lonely)


def test_a_public_class_name_stands_for_one_thing() -> None:
    twice = structure.names_used_twice()
    hold(len(twice), NAMES_TWICE, "NAMES_TWICE", twice)


def test_functions_have_few_parameters() -> None:
    found = structure.long_signatures()
    hold(len(found), LONG_SIGNATURES, "LONG_SIGNATURES", found)


def test_pronouns_in_docstrings_have_their_nouns() -> None:
    hold(len(structure.pronoun_sentences()), PRONOUNS, "PRONOUNS", "see `python -m tests.structure pronouns`")


def test_documents_do_not_grow() -> None:
    words = structure.markdown_words()
    hold(sum(words.values()), MARKDOWN_WORDS, "MARKDOWN_WORDS", "see `python -m tests.structure words`")


def test_files_are_short() -> None:
    code = {each.name: structure.code_lines(each) for each in structure.product()}
    assert not {name: lines for name, lines in code.items() if lines > MOST_CODE and name not in LONG_FILES}


def test_rooms_are_small() -> None:
    sizes = structure.room_sizes()
    assert not {name: count for name, count in sizes.items() if count > MOST_FILES and name not in FULL_ROOMS}
    assert FULL_ROOMS.keys() <= sizes.keys()


def test_every_limit_is_read_by_the_product() -> None:
    """A limit that only the configuration knows has no effect; rates are read by ``accounts`` as text."""
    read = {
        name
        for file in structure.product()
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
        for each in structure.files("tests")
        for node in ast.walk(each.tree)
        if isinstance(node, structure.FUNCTIONS)
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
        if all(len(files) <= WALKS[name] for name, files in fewest.items()):
            break
        fewest = {name: fewest[name] & files for name, files in (await walked()).items()}
    for name, files in fewest.items():
        hold(len(files), WALKS[name], f"WALKS[{name!r}]", sorted(files), WALK_SLACK)


# -- the counting itself ---------------------------------------------------------------------------


def source(text: str) -> structure.File:
    return structure.File("index/some.py", text, ast.parse(text))


def test_code_is_counted_without_docstrings_comments_and_empty_lines() -> None:
    text = '"""Doc\n\nmore."""\n\nX = 1\n"""Of X."""\n# why\ndef f():\n    """Doc."""\n    return X  # this\n'
    assert structure.code_lines(source(text)) == 3


def test_headers_are_the_docstring_and_all_imports_at_the_top() -> None:
    text = '"""Doc."""\n\nimport ast\nfrom x import (\n    y,\n)\nif TYPE_CHECKING:\n    import z\nX = 1\n'
    assert structure.header_lines(source(text)) == 1 + 1 + 3 + 2


@pytest.mark.parametrize(
    ("signature", "count"),
    [("self, a, b", 2), ("a, *, b, c=1", 2), ("a, /, b=1, *more, **others", 2), ("cls", 0), ("a, self", 2)],
)
def test_parameters_are_those_that_a_caller_must_know(signature: str, count: int) -> None:
    (function,) = ast.parse(f"def f({signature}): ...").body
    assert isinstance(function, ast.FunctionDef)
    assert structure.parameters(function) == count


@pytest.mark.parametrize(
    "sentence",
    [
        "Makes it that of the slowest of those so far and another one.",
        "Deletes steps of which the next one is gone.",
        "None of them is over.",
        "What is read is answered again.",
        "Returns what was asked for, and what it was.",
        "Who begins at a frontier needs every later step.",
        "Whoever asserts a fact keeps it up.",
        "Returns those that are new.",
    ],
)
def test_a_pronoun_without_its_noun_is_found(sentence: str) -> None:
    assert structure.has_pronoun(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "A reader starting at a frontier needs every later step.",
        "Returns the next whole frame, or None until more has been fed.",
        "Keeps the larger of each figure.",
        "A fact that is derived ends with its cause.",
        "Answers are cached for one second.",
    ],
)
def test_plain_sentences_are_not(sentence: str) -> None:
    assert not structure.has_pronoun(sentence)


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
