"""Puts a defect into a module while it is imported.

Imports nothing of the product, which must be imported after ``plant``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, NamedTuple, TypeAlias

ROOT: Final = Path(__file__).parents[2]
COUNT: Final = "_planted"
"""The name under which a changed module finds the function that counts."""


class Defect(NamedTuple):
    """One mistake: where it goes, and what takes the place of what."""

    name: str
    door: str
    """Which generated tests should find it."""
    module: str
    qualified: str
    """A function, a method or a class; an empty text for the module itself."""
    there: str | None
    """One statement or expression; None for the whole body."""
    instead: str
    field: str = ""
    """The part of the product, for the summary."""

    @property
    def place(self) -> str:
        """A mark of the row, for what is kept of it: another one if the row is changed."""
        row = (self.door, self.module, self.qualified, self.there, self.instead)
        return sha256(repr(row).encode()).hexdigest()[:16]


Rows: TypeAlias = Mapping[str, Sequence[tuple[str, str, str | None, str]]]
"""By module: name, qualified name, what is there, and what takes its place."""


class Misplaced(Exception):
    """The place of a defect is gone, or there is more than one."""


class Planted:
    """A defect that is in its module, or will be once that is imported; ``executed`` times so far."""

    def __init__(self, defect: Defect) -> None:
        self.defect: Final = defect
        self.executed = 0

    def count(self) -> None:
        """Notes that the changed place is executed."""
        self.executed += 1


def plant(defect: Defect, kind: type[Planted] = Planted) -> Planted:
    """Has the module of a defect imported with the defect, in this process; it must not be imported yet."""
    assert defect.module not in sys.modules, f"{defect.module} was imported before the defect was planted"
    planted = kind(defect)
    sys.meta_path.insert(0, _Finder(planted))
    return planted


class _Finder(MetaPathFinder):
    """Finds the one module as Python does, with another loader."""

    def __init__(self, planted: Planted) -> None:
        self._planted = planted

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of the module with the defect, and None for all others."""
        if fullname != self._planted.defect.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self._planted)
        return spec


class _Loader(SourceFileLoader):
    """Compiles the changed source each time: bytecode of it is neither read nor written."""

    def __init__(self, fullname: str, path: str, planted: Planted) -> None:
        super().__init__(fullname, path)
        self._planted = planted

    def get_code(self, fullname: str) -> CodeType:
        """Returns the module with the defect."""
        source = Path(self.path).read_text("utf-8")
        code: CodeType = compile(applied(source, self._planted.defect), self.path, "exec")
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Gives the module the function that counts, and executes it."""
        vars(module)[COUNT] = self._planted.count
        super().exec_module(module)


def source_of(module: str) -> str:
    """Returns the text of a module of this checkout."""
    return ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")


def applied(source: str, defect: Defect) -> ast.Module:
    """Returns a module with a defect; raises ``Misplaced`` unless it fits in exactly one place."""
    tree = ast.parse(source)
    within = _named(tree, defect.qualified)
    if defect.there is None:
        documented = isinstance(within, _SCOPES) and ast.get_docstring(within, clean=False) is not None
        within.body[documented:] = [_counting(), *_returning(defect.instead)]
        return ast.fix_missing_locations(tree)
    (there,) = ast.parse(defect.there).body
    instead = ast.parse(defect.instead).body
    if isinstance(there, ast.Expr) and len(instead) == 1 and isinstance(instead[0], ast.Expr):
        put = _one(list(_places(within, there.value)), defect)
        put([ast.Subscript(ast.Tuple([_call(), instead[0].value], ast.Load()), ast.Constant(1), ast.Load())])
    else:
        put = _one(list(_places(within, there)), defect)
        put([_counting(), *instead])
    return ast.fix_missing_locations(tree)


_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Put = Callable[[list[ast.AST]], None]


def _named(tree: ast.Module, qualified: str) -> _Scope:
    """Returns the one function or class of this name; overloads and other branches make several."""
    found: list[_Scope] = [tree]
    for name in qualified.split(".") if qualified else ():
        found = [
            each for scope in found for each in scope.body if isinstance(each, _SCOPES) and each.name == name
        ]
    if len(found) != 1:
        raise Misplaced(f"{len(found)} things have the name {qualified}")
    return found[0]


def _places(within: ast.AST, wanted: ast.AST) -> Iterator[_Put]:
    """Yields for each place where the wanted tree is a function that puts others there."""
    shown = ast.dump(wanted)
    for parent in ast.walk(within):
        for field, value in ast.iter_fields(parent):
            if isinstance(value, list):
                for at, each in enumerate(value):
                    if each.__class__ is wanted.__class__ and ast.dump(each) == shown:
                        yield _into_list(value, at)
            elif value.__class__ is wanted.__class__ and ast.dump(value) == shown:
                yield _into_field(parent, field)


def _into_list(values: list[ast.AST], at: int) -> _Put:
    def put(instead: list[ast.AST]) -> None:
        values[at : at + 1] = instead

    return put


def _into_field(parent: ast.AST, field: str) -> _Put:
    def put(instead: list[ast.AST]) -> None:
        (only,) = instead
        setattr(parent, field, only)

    return put


def _one(places: list[_Put], defect: Defect) -> _Put:
    if len(places) != 1:
        raise Misplaced(f"{len(places)} places in {defect.qualified} are {defect.there!r}")
    return places[0]


def _returning(body: str) -> list[ast.stmt]:
    """Returns the statements of a whole body, in which ``return`` may stand."""
    lines = ["def body():", *[f"    {line}" for line in body.splitlines()]]
    (made,) = ast.parse("\n".join(lines)).body
    assert isinstance(made, ast.FunctionDef)  # as it was written
    return made.body


def _call() -> ast.Call:
    return ast.Call(ast.Name(COUNT, ast.Load()), [], [])


def _counting() -> ast.Expr:
    return ast.Expr(_call())
