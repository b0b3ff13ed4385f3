"""The build compiles files that exist, and states in its copy how some classes are compiled."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path
from typing import Any, Final

import pytest

TOP: Final = Path(__file__).parents[2]
BUILD: Final[dict[str, Any]] = runpy.run_path(str(TOP / "setup.py"))


@pytest.mark.parametrize("name", [*BUILD["MACHINE_CODE"], *BUILD["ATTRIBUTES"]])
def test_what_is_compiled_exists(name: str) -> None:
    assert (TOP / name).exists()
    assert name in BUILD["MACHINE_CODE"] or name.split("/")[0] in BUILD["MACHINE_CODE"]


@pytest.mark.parametrize("name", BUILD["ATTRIBUTES"])
def test_each_line_of_a_file_keeps_its_number(name: str) -> None:
    source = (TOP / name).read_text(encoding="utf-8")
    classes = BUILD["ATTRIBUTES"][name]
    attributed = BUILD["attributed"](source, classes)
    assert len(attributed.splitlines()) == len(source.splitlines())
    lines = {node.name: node.lineno for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    for node in ast.parse(attributed).body:
        if isinstance(node, ast.ClassDef):
            assert node.lineno == lines[node.name]
            said = [ast.unparse(each) for each in node.decorator_list]
            assert (f"mypyc_attr({classes.get(node.name)})" in said) == (node.name in classes)


def test_a_class_that_is_not_there_ends_the_build() -> None:
    with pytest.raises(SystemExit, match="0 classes Gone"):
        BUILD["attributed"]("from __future__ import annotations\n\n\nclass Here:\n", {"Gone": "acyclic=True"})


def test_only_an_acyclic_object_is_freed_without_the_trashcan() -> None:
    def freeing(name: str, untrack: str) -> str:
        return (
            f"static void\n{name}_dealloc({name}Object *self)\n{{\n{untrack}"
            f"    CPy_TRASHCAN_BEGIN(self, {name}_dealloc)\n    {name}_clear(self);\n"
            "    CPy_TRASHCAN_END(self)\n    done: ;\n}\n\n"
        )

    cyclic = freeing("cyclic", "    PyObject_GC_UnTrack(self);\n")
    acyclic = freeing("acyclic", "")
    expected = re.sub(r".*TRASHCAN.*\n", "", acyclic)
    assert BUILD["without_trashcan"](cyclic + acyclic + cyclic) == cyclic + expected + cyclic
