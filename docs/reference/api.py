"""The pages of the public modules: each name, which mkdocstrings documents from its docstring."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from pathlib import Path

from docs.plan import MODULES
from docs.reference.tables import one_line


def pages() -> dict[str, str]:
    """Returns a page for each public module; what several have is on the page of the first one."""
    shown: dict[str, str] = {}
    return {f"reference/api/{name}.md": _page(name, shown) for name in MODULES}


def _page(name: str, shown: dict[str, str]) -> str:
    """Returns the page of a module, and notes where what it documents is shown."""
    module = importlib.import_module(name)
    homes = _homes(name)
    parts = [f"# {name}", one_line(module.__doc__)]
    for each in module.__all__:
        home = f"{homes.get(each, name)}.{each}"
        there = shown.setdefault(home, name)
        parts.append(f"::: {home}" if there == name else f"`{each}`: see [{there}]({there}.md#{home}).")
    return "\n\n".join(parts) + "\n"


def _homes(module: str) -> dict[str, str]:
    """Returns where the names of a module are defined: most public ones only hand on what is elsewhere."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    nodes = ast.walk(ast.parse(Path(spec.origin).read_bytes()))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: f"{each.module}" for each in imports for alias in each.names}
