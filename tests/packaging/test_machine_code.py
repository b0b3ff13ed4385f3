"""An interpreted class has no base of machine code, unless that is compiled to be derived from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).parents[2]


def _named(name: str) -> ast.expr:
    """Returns the value that ``setup.py`` gives a name; it cannot be imported where nothing is built."""
    for node in ast.parse((CHECKOUT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node.value
    raise AssertionError(name)


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _imported(tree: ast.Module) -> dict[str, str]:
    """Returns where each imported name of a file comes from, as ``module.name``."""
    return {
        each.asname or each.name: f"{node.module}.{each.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }


def _base(node: ast.expr) -> str:
    return ast.unparse(node.value if isinstance(node, ast.Subscript) else node)


def test_no_interpreted_class_derives_from_a_compiled_one() -> None:
    plain = ast.literal_eval(_named("PLAIN"))
    compiled: set[Path] = set()
    for name in ast.literal_eval(_named("MACHINE_CODE")):
        path = CHECKOUT / name
        compiled |= {path} if path.suffix else {each for each in path.rglob("*.py") if each.name not in plain}
    attributes = _named("ATTRIBUTES")
    opened = {
        key.value
        for file in ast.walk(attributes)
        if isinstance(file, ast.Dict)
        for key, how in zip(file.keys, file.values, strict=True)
        if isinstance(how, ast.Name) and how.id == "OPEN" and isinstance(key, ast.Constant)
    }
    closed = {
        f"{'.'.join(path.relative_to(CHECKOUT).with_suffix('').parts)}.{each.name}"
        for path in compiled
        if path.name != "errors.py"  # exceptions are classes of the interpreter all the same
        for each in _classes(_parsed(path))
        if each.name not in opened
    }
    assert closed, "so that there is something to derive from"
    wrong = []
    for layer in ("dataspace", "relay", "server"):
        for path in sorted((CHECKOUT / layer).rglob("*.py")):
            if path not in compiled:
                tree = _parsed(path)
                imported = _imported(tree)
                for each in _classes(tree):
                    bases = [_base(base) for base in each.bases]
                    if closed & {imported.get(base, base) for base in bases}:
                        wrong.append(f"{path.relative_to(CHECKOUT)}: {each.name}({', '.join(bases)})")
    assert not wrong
