"""The named points in the sources where a process can have itself killed."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

LAYERS = ("dataspace", "relay", "server")

ELSEWHERE = ("spark-", "trim-")
"""Points that are struck by ``tests/relay/spark/test_torture.py`` and ``tests/relay/log/test_crashes.py``."""


def named_points() -> list[str]:
    """Every name that ``reach`` is called with, in the order of files and lines."""
    found: list[str] = []
    for layer in LAYERS:
        spec = importlib.util.find_spec(layer)
        assert spec is not None and spec.submodule_search_locations, f"{layer} is not importable"
        for path in sorted(Path(next(iter(spec.submodule_search_locations))).rglob("*.py")):
            found += _points_in(ast.parse(path.read_bytes()))
    return [each for each in found if not each.startswith(ELSEWHERE)]


def _points_in(tree: ast.Module) -> list[str]:
    return [
        str(node.args[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "reach"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ]
