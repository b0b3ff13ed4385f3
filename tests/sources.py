"""The Python files of the product and its tests, and how many lines they have of what."""

from __future__ import annotations

import ast
import gc
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

TOP: Final = Path(__file__).parents[1]
PACKAGES: Final = ("index", "dataspace", "relay", "server")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED: Final = (ast.Module, ast.ClassDef, *FUNCTIONS)


@dataclass(frozen=True)
class File:
    """One file of the product or its tests: its path from the top, its text and its syntax tree."""

    name: str
    text: str
    tree: ast.Module = field(repr=False)

    @property
    def lines(self) -> int:
        return self.text.count("\n")


def files(*folders: str) -> tuple[File, ...]:
    """Returns the Python files of some folders of the repository, sorted by name."""
    return tuple(itertools.chain.from_iterable(map(_files, folders)))


@cache
def _files(folder: str) -> list[File]:
    found = []
    gc.disable()  # trees are no garbage, and to look for some takes three times as long as to read them
    for path in sorted((TOP / folder).rglob("*.py")):
        text = path.read_text()
        found.append(File(path.relative_to(TOP).as_posix(), text, ast.parse(text)))
    gc.freeze()
    gc.enable()
    return found


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yields the statements within a node, those within statements as well, without their expressions."""
    for each in ast.iter_child_nodes(tree):
        if isinstance(each, ast.stmt):
            yield each
        if not isinstance(each, ast.expr):
            yield from statements(each)


def product() -> tuple[File, ...]:
    return files(*PACKAGES)


# -- sizes -----------------------------------------------------------------------------------------


def docstring(node: ast.AST) -> ast.Expr | None:
    """Returns the statement that is a node's docstring, or None."""
    if not isinstance(node, DOCUMENTED) or not node.body:
        return None
    first = node.body[0]
    return first if isinstance(first, ast.Expr) and text_of(first) else None


def text_of(node: ast.Expr) -> str:
    """Returns the text of a statement that is one, else nothing."""
    return (
        node.value.value if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else ""
    )


def docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    """Yields the docstrings of a file: of the module, classes, functions and of attributes."""
    for node in ast.walk(tree):
        found = docstring(node)
        if found is not None:
            yield found
        if isinstance(node, DOCUMENTED):
            for before, each in itertools.pairwise(node.body):
                if (
                    isinstance(before, (ast.Assign, ast.AnnAssign))
                    and isinstance(each, ast.Expr)
                    and text_of(each)
                ):
                    yield each


def span(node: ast.stmt) -> range:
    """Returns the lines of a statement."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def code_lines(file: File) -> int:
    """Returns how many lines have code: no docstring, no comment, not empty."""
    prose = {line for each in docstrings(file.tree) for line in span(each)}
    lines = enumerate(file.text.splitlines(), 1)
    return sum(
        1 for at, line in lines if at not in prose and line.strip() and not line.lstrip().startswith("#")
    )


def import_lines(file: File) -> int:
    """Returns how many lines with code the imports at the top of a file have."""
    found = {line for node in file.tree.body if _imports(node) for line in span(node)}
    return sum(1 for line in found if file.text.splitlines()[line - 1].strip())


def _imports(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom)) or (
        isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    )


def header_lines(file: File) -> int:
    """Returns how many lines the imports at the top of a file and its docstring have."""
    found = set[int]()
    top = docstring(file.tree)
    if top is not None:
        found.update(span(top))
    for node in file.tree.body:
        if _imports(node):
            found.update(span(node))
    return len(found)
