"""The page of settings: each with its default, its variable, and what it may be."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import groupby, pairwise
from types import FunctionType

from dataspace.kernel.limits import SpaceLimits
from docs.reference.tables import code, one_line, table
from server.config.model import Limits, Slow, Traces
from server.config.quotas import Quotas
from server.config.settings import SETTINGS, Setting
from server.config.web import Web

HEAD = """\
# Settings

Every setting of one value that `dataspace serve` knows, as the program has it.
[Configuration and rights](../operations/serve.md) explains them, and has the tables `[[tokens]]`,
`[[rules]]`, `[[actors]]`, `[[flows]]` and `[spaces.NAME]`. A setting stands in the file under its name, in
the environment under its variable, and some have an option. `dataspace serve --check` prints those that hold.
"""

GROUPS = {
    "limits": (Limits, SpaceLimits),
    "quota": (Quotas,),
    "web": (Web,),
    "slow": (Slow,),
    "traces": (Traces,),
}


def page() -> str:
    """Returns the page."""
    parts = [HEAD]
    heads = ("setting", "default", "value", "option, variable")
    for group, settings in groupby(SETTINGS, lambda each: each.name.rpartition(".")[0]):
        notes = {name: note for kind in GROUPS.get(group, ()) for name, note in notes_of(kind).items()}
        rows = [_row(each, notes.get(each.name.rpartition(".")[2], "")) for each in settings]
        parts.append(f"## {'[' + group + ']' if group else 'At the top of the file'}\n\n{table(heads, rows)}")
    return "\n\n".join(parts) + "\n"


def _row(setting: Setting, note: str) -> tuple[str, ...]:
    assert isinstance(setting.read, FunctionType)
    said = one_line(setting.read.__doc__).removeprefix("Returns ").rstrip(".")
    said = "one of some words" if said.startswith("what reads") else said
    option = code("--" + setting.option.replace("_", "-")) + "<br>" if setting.option else ""
    return code(setting.name), _default(setting), f"{said}. {note}".strip(), option + code(setting.variable)


def _default(setting: Setting) -> str:
    value = setting.default
    if setting.name == "socket_mode":
        return code(f"{value:04o}")
    if value is None or value in ((), ""):
        return "–"
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return code(f"{value >> 20} MiB" if value % (1 << 30) else f"{value >> 30} GiB")
    if isinstance(value, int | float):
        return code(f"{value:,}".replace(",", " "))
    return code(", ".join(value) if isinstance(value, tuple) else str(value))


def notes_of(kind: type) -> dict[str, str]:
    """Returns what stands below each field of a class in its source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    assert isinstance(tree.body[0], ast.ClassDef)
    body = tree.body[0].body
    return {
        field.target.id: one_line(str(below.value.value))
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }
