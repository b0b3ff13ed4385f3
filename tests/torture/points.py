"""The named points in the sources where a process can have itself killed."""

from __future__ import annotations

import ast
from pathlib import Path

import dataspace
import relay
import server

LAYERS = (dataspace, relay, server)

ELSEWHERE = (
    "spark-",
    "trim-",
    "backup-",
    "copy-",
    "push-",
    "fetch-",
    "restore-",
    "upgrade-",
    "database-",
    "archive-",
    "merge-",
    "erase-",
)
"""Points that tests of their own strike: of Spark, the log, upkeep, upgrades, clusters and archives."""


def named_points() -> list[str]:
    """Every name that ``reach`` is called with, in the order of files and lines."""
    folders = [Path(layer.__path__[0]) for layer in LAYERS]
    # Where the package is installed, one folder contains the others.
    files = dict.fromkeys(path for folder in folders for path in sorted(folder.rglob("*.py")))
    found = [name for path in files for name in _points_in(ast.parse(path.read_bytes()))]
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
