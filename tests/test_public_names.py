"""Public names are where the documents say, under ``dataspace``: in a checkout as where it is installed."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dataspace.spark.__main__ import PROGRAMS

TOP: Final = Path(__file__).parents[1]
INNER: Final = ("index", "relay", "server")
DOCUMENTS: Final = sorted(
    [*TOP.glob("*.md"), *(path for name in ("dataspace", *INNER) for path in (TOP / name).rglob("*.md"))]
)
CURRENT: Final = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]
"""Those that tell what holds now, and not what was."""

PUBLIC: Final = [
    "dataspace",
    "dataspace.actors",
    "dataspace.log",
    "dataspace.patterns",
    "dataspace.rules",
    "dataspace.spark",
    "dataspace.streams",
    "dataspace.testing",
    "dataspace.text",
    "dataspace.values",
]
LAZY: Final = [name for name in PUBLIC if hasattr(importlib.import_module(name), "__getattr__")]

INNER_NAME: Final = re.compile(
    rf"^\s*(?:>>> )?(?:from|import) (?:{'|'.join(INNER)})\b|python -m (?:{'|'.join(INNER)})\b", re.MULTILINE
)
"""What a user may not be told: it is right in a checkout, and imports something else or nothing elsewhere."""

by_document = pytest.mark.parametrize("path", CURRENT, ids=[str(path.relative_to(TOP)) for path in CURRENT])


def resolve(dotted: str) -> object:
    """What a dotted name stands for: a module, or something in one; ``AttributeError`` if there is none."""
    parts = dotted.split(".")
    found: object = importlib.import_module(parts[0])
    for count, part in enumerate(parts[1:], 2):
        name = ".".join(parts[:count])
        try:
            found = getattr(found, part)
        except AttributeError:
            if importlib.util.find_spec(name) is None:
                raise
            found = importlib.import_module(name)
    return found


# -- public modules --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_of_a_public_module_is_there(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__all__, "it says what it holds"
    for each in module.__all__:
        assert getattr(module, each) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018  # it is looked up


@pytest.mark.parametrize("name", LAZY)
def test_type_checkers_see_the_names_that_are_loaded_on_demand(name: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_bytes())
    assert seen_by_types(tree) == loaded_on_demand(tree)


def seen_by_types(tree: ast.Module) -> dict[str, set[str]]:
    """The imports of the block for type checkers, as modules and names."""
    (block,) = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]
    found: dict[str, set[str]] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom) and node.module
        assert all(alias.asname == alias.name for alias in node.names), "only `x as x` hands a name on"
        found[node.module] = {alias.name for alias in node.names}
    return found


def loaded_on_demand(tree: ast.Module) -> dict[str, set[str]]:
    """The table of a face: modules and the names that are loaded from them."""
    (table,) = [
        node.args[1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "face"
    ]
    return {module: set(names.split()) for module, names in ast.literal_eval(table).items()}


# -- documents -------------------------------------------------------------------------------------


def blocks(path: Path) -> Iterator[ast.Module]:
    """The blocks of Python in a document."""
    for block in re.findall(
        r"^```python(?: title=\"[^\"]*\")?\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL
    ):
        yield ast.parse(block)


def used(tree: ast.Module) -> Iterator[str]:
    """Every dotted name of ours that a program imports, or reaches through what it imports."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "dataspace":
                    yield alias.name
                    bound[alias.asname or "dataspace"] = alias.name if alias.asname else "dataspace"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dataspace":
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        chain = dotted(node)
        if chain and chain[0] in bound and bound[chain[0]].split(".")[-1].islower():
            yield ".".join([bound[chain[0]], *chain[1:]])


def dotted(node: ast.AST) -> list[str]:
    """The parts of ``a.b.c``; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return [node.id, *parts] if isinstance(node, ast.Name) and parts else []


def test_documents_have_programs() -> None:
    names = [name for path in CURRENT for tree in blocks(path) for name in used(tree)]
    assert {"dataspace.Record", "dataspace.streams.pipe", "dataspace.actors.Turn"} <= set(names)


@by_document
def test_the_programs_of_a_document_find_their_names(path: Path) -> None:
    for tree in blocks(path):
        for name in used(tree):
            resolve(name)


@by_document
def test_names_in_the_text_of_a_document_are_there(path: Path) -> None:
    for name in re.findall(r"`(dataspace(?:\.[A-Za-z_]\w*)+)[^`\s/]*`", path.read_text()):
        if not name.endswith((".toml", ".sock", ".service")):
            resolve(name)


@by_document
def test_programs_that_a_document_names_are_there(path: Path) -> None:
    for module, word in re.findall(r"python -m ([a-z][\w.]*)(?: ([\w.]+))?", path.read_text()):
        if module == "dataspace.spark":
            assert not word or word in PROGRAMS
        module = module.removesuffix(".NAME")
        assert importlib.util.find_spec(PROGRAMS.get(word, module)) is not None, module


@by_document
def test_no_document_names_a_module_by_where_it_is_in_the_checkout(path: Path) -> None:
    text = path.read_text()
    assert not INNER_NAME.search(text)
    modules = re.findall(rf"`((?:{'|'.join(INNER)})\.[a-z_]\w*[^`]*)`", text)
    assert not [name for name in modules if is_module(name)]


def is_module(name: str) -> bool:
    """True for what was or is a module's path, and not the name of a file."""
    return not re.fullmatch(r"\w+\.(?:py|md|toml|log|pem|key|json)", name)


def test_no_docstring_or_message_has_users_import_from_an_inner_package() -> None:
    wrong = []
    for name in ("dataspace", *INNER):
        for path in sorted((TOP / name).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.Constant) and INNER_NAME.search(str(node.value)):
                    wrong.append(f"{path.relative_to(TOP)}:{node.lineno}")
    assert not wrong
