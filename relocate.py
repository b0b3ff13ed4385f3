"""Relocation: the layout of the checkout becomes the layout that is installed.

The repository has four packages side by side.  Three of them, ``index``, ``relay`` and ``server``, have
names that any project may use for its own, so the wheel holds them inside ``dataspace``.  ``setup.py``
relocates the copy from which a wheel is packed; ``python relocate.py FOLDER`` rewrites the imports of other
files, such as tests that are to run against the wheel.

What is rewritten: ``from`` and ``import`` statements, and string constants that are wholly the dotted path
of one of our modules, or of something in it (``"relay.store.staging.CLOSED"``).  A single word is no dotted
path, and text inside a longer string stays as it is.

Always: nothing but those names changes, so each line keeps its number; what is relocated already stays as it
is; an import that cannot be rewritten in place is an error, never skipped.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

OUTER: Final = "dataspace"
INNER: Final = ("index", "relay", "server")

_DOTTED: Final = re.compile(rf"(?:{'|'.join(INNER)})(?:\.[A-Za-z_]\w*)+")


class RelocationError(Exception):
    """A form of import that cannot be rewritten in place; it names the line and the form to use instead."""


class _Edit(NamedTuple):
    """At a line, and a column in bytes of UTF-8 as ``ast`` counts them: what stands there, and what shall."""

    line: int
    column: int
    old: str
    new: str


def relocate(top: Path) -> None:
    """Moves the three inner packages of a folder into its ``dataspace``, and rewrites all files.

    The marker ``py.typed`` of ``dataspace`` stands for all of it; those of the others are removed.
    """
    known = modules(top)
    for name in INNER:
        shutil.move(top / name, top / OUTER / name)
        (top / OUTER / name / "py.typed").unlink(missing_ok=True)
    rewrite_files(top / OUTER, known)


def rewrite_files(top: Path, known: frozenset[str]) -> None:
    """Rewrites each Python file of a folder in place."""
    for path in sorted(top.rglob("*.py")):
        before = path.read_bytes()
        try:
            after = rewritten(before.decode(), known).encode()
        except RelocationError as error:
            raise RelocationError(f"{path}: {error}") from error
        if after != before:
            path.write_bytes(after)


def modules(top: Path) -> frozenset[str]:
    """Returns the dotted path of each module and package of the inner packages in a checkout."""
    found = set[str]()
    for name in INNER:
        for path in (top / name).rglob("*.py"):
            parts = path.relative_to(top).with_suffix("").parts
            found.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return frozenset(found)


def rewritten(source: str, known: frozenset[str]) -> str:
    """Returns a file's text with the names of inner modules as they are when installed.

    >>> rewritten("from index.values import Record", frozenset())
    'from dataspace.index.values import Record'
    """
    lines = source.encode().splitlines(keepends=True)  # of text it would also part at U+2028 and the like
    # The last edit of a line comes first, so that the columns of the others still hold.
    for edit in sorted(set(_edits(ast.parse(source), known)), reverse=True):
        line = lines[edit.line - 1]
        end = edit.column + len(edit.old.encode())
        if line[edit.column : end] != edit.old.encode():
            raise RelocationError(f"line {edit.line}: expected {edit.old!r} in one piece")
        lines[edit.line - 1] = line[: edit.column] + edit.new.encode() + line[end:]
    return b"".join(lines).decode()


def _edits(tree: ast.AST, known: frozenset[str]) -> Iterator[_Edit]:
    nodes = list(ast.walk(tree))
    joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    parts = {part for node in joined for part in node.values}
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(name), level=0) if _is_inner(name):
                yield _Edit(node.lineno, node.col_offset, f"from {name}", f"from {OUTER}.{name}")
            case ast.Import():
                yield from _of_import(node)
            case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if _is_path(
                text.rstrip("."), known
            ):
                raise RelocationError(f"line {node.lineno}: a module's path in an f-string: {text!r}")
            case ast.Constant(value=str(text)) if node not in parts and _is_path(text, known):
                yield _Edit(node.lineno, node.col_offset + 1, text, f"{OUTER}.{text}")


def _of_import(node: ast.Import) -> Iterator[_Edit]:
    for alias in node.names:
        name = alias.name
        if not _is_inner(name):
            continue
        if alias.asname:
            yield _Edit(alias.lineno, alias.col_offset, name, f"{OUTER}.{name}")
        elif "." in name:
            package, _, last = name.rpartition(".")
            raise RelocationError(
                f"line {node.lineno}: `import {name}` makes the name {name.split('.')[0]}; "
                f"write `from {package} import {last}`"
            )
        elif len(node.names) > 1:
            raise RelocationError(f"line {node.lineno}: `import {name}` needs a statement of its own")
        else:
            yield _Edit(node.lineno, node.col_offset, f"import {name}", f"from {OUTER} import {name}")


def _is_inner(name: str) -> bool:
    return name.split(".")[0] in INNER


def _is_path(text: str, known: frozenset[str]) -> bool:
    """True for a dotted path that begins with one of our modules: ``server.toml`` does not."""
    return _DOTTED.fullmatch(text) is not None and ".".join(text.split(".")[:2]) in known


if __name__ == "__main__":
    rewrite_files(Path(sys.argv[1]), modules(Path(__file__).parent))
