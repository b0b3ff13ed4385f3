"""Relocation changes the names of inner modules, and nothing else."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from relocate import INNER, OUTER, RelocationError, modules, relocate, rewritten

TOP = Path(__file__).parents[2]
KNOWN = modules(TOP)
FILES = sorted(path for name in (OUTER, *INNER, "tests", "bench") for path in (TOP / name).rglob("*.py"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from index.values.values import Record", "from dataspace.index.values.values import Record"),
        ("from relay import store", "from dataspace.relay import store"),
        ("import relay", "from dataspace import relay"),
        ("import relay as r", "import dataspace.relay as r"),
        ("import trio, relay.store.errors as e", "import trio, dataspace.relay.store.errors as e"),
        ("def f():\n    from server.cli import main; import index", None),
        ("é = 'ü'; from relay import log", "é = 'ü'; from dataspace.relay import log"),
        ("x = 'relay.store.staging.CLOSED'", "x = 'dataspace.relay.store.staging.CLOSED'"),
        ("x = 'é', 'server.cli.main'", "x = 'é', 'dataspace.server.cli.main'"),
        ("s = '\u2028'\nimport index", "s = '\u2028'\nfrom dataspace import index"),
        ("# of relay\r\nimport relay\r\n", "# of relay\r\nfrom dataspace import relay\r\n"),
    ],
)
def test_what_is_rewritten(before: str, after: str | None) -> None:
    expected = after or "def f():\n    from dataspace.server.cli import main; from dataspace import index"
    assert rewritten(before, KNOWN) == expected


@pytest.mark.parametrize(
    "source",
    [
        "from dataspace.relay import store",
        "import dataspace.index",
        "from . import relay",
        "from .relay import x",
        "import indexes, relays.log",
        "x = 'index', 'server', 'relay'",
        "x = 'server.toml', 'index.html', 'relay.nothing.of.ours'",
        "x = 'see server.cli.main for more'",
        "x = f'a {server.cli.main} of server.cli.main'",
        "x = b'server.cli.main'",
        '"""Text about relay.store.staging."""',
        "relay.store.staging.CLOSED = 2",
    ],
)
def test_what_stays(source: str) -> None:
    assert rewritten(source, KNOWN) == source


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("\nimport relay.spark", r"line 2: .* write `from relay import spark`"),
        ("import relay.spark.source.source", r"write `from relay.spark.source import source`"),
        ("import trio, relay", "a statement of its own"),
        ("from  relay import log", "in one piece"),
        ("x = 'relay.' 'store.staging'", "in one piece"),
        ("x = r'relay.store.staging'", "in one piece"),
        ("x = f'relay.store.{name}'", "in an f-string"),
    ],
)
def test_what_cannot_be_rewritten_is_an_error(source: str, message: str) -> None:
    with pytest.raises(RelocationError, match=message):
        rewritten(source, KNOWN)


NAMES = st.sampled_from(
    [*sorted(KNOWN)[:20], "index", "relay", "server", "dataspace.wire", "trio", "indexes", "os.path"]
)


@st.composite
def statements(draw: st.DrawFn) -> str:
    """A line that imports or names a module in one of the forms that can be rewritten."""
    name = draw(NAMES)
    form = draw(
        st.sampled_from(
            ["from {} import x", "from {} import x as y", "import {} as z", "s = '{}'", '"{}", 1']
        )
    )
    return draw(st.sampled_from(["", "é = 'ü'; ", "if 1: "])) + form.format(name)


def moved(name: str) -> str:
    return f"{OUTER}.{name}" if name.split(".")[0] in INNER else name


class Mover(ast.NodeTransformer):
    """The same change on syntax trees, where it is easy to see that it is right."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        return ast.ImportFrom(
            moved(node.module or "") if not node.level else node.module, node.names, node.level
        )

    def visit_Import(self, node: ast.Import) -> ast.Import | ast.ImportFrom:
        (alias, *others) = node.names
        if alias.name in INNER and not alias.asname and not others:
            return ast.ImportFrom(OUTER, [alias], 0)
        return ast.Import([ast.alias(moved(each.name), each.asname) for each in node.names])

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) and "." in node.value and self.of_ours(node.value):
            return ast.Constant(moved(node.value), node.kind)
        return node

    @staticmethod
    def of_ours(text: str) -> bool:
        parts = text.split(".")
        return all(part.isidentifier() for part in parts) and ".".join(parts[:2]) in KNOWN


def holds(source: str) -> None:
    """The law: the same tree but for the names, as many lines, and nothing to do a second time."""
    after = rewritten(source, KNOWN)
    assert ast.unparse(ast.parse(after)) == ast.unparse(Mover().visit(ast.parse(source)))
    assert len(after.splitlines()) == len(source.splitlines())
    assert rewritten(after, KNOWN) == after


@given(st.lists(statements(), max_size=5).map("\n".join))
def test_any_file_is_the_same_but_for_the_names(source: str) -> None:
    holds(source)


@pytest.mark.slow
@pytest.mark.torture
def test_each_of_our_files_is_the_same_but_for_the_names() -> None:
    ours = [path for path in FILES if path.relative_to(TOP).parts[0] in (OUTER, *INNER)]
    others = [
        path for path in FILES if path not in ours and path != Path(__file__)
    ]  # whose examples are refused
    for path in [*ours, *others] if "TORTURE_ROUNDS" in os.environ else ours[::4]:
        holds(path.read_text())


def test_a_folder_is_relocated_whole(tmp_path: Path) -> None:
    for name in (OUTER, *INNER):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "py.typed").write_text("")
        (tmp_path / name / "PAGE.md").write_text("import relay\n")
    (tmp_path / "relay" / "store.py").write_text("from index import x\nPATH = 'relay.store'\n")
    (tmp_path / OUTER / "__main__.py").write_text("from server import cli\n")
    relocate(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [OUTER]
    assert (tmp_path / OUTER / "relay/store.py").read_text() == (
        "from dataspace.index import x\nPATH = 'dataspace.relay.store'\n"
    )
    assert (tmp_path / OUTER / "__main__.py").read_text() == "from dataspace.server import cli\n"
    assert (tmp_path / OUTER / "server" / "PAGE.md").read_text() == "import relay\n"
    assert [path.parent for path in tmp_path.rglob("py.typed")] == [tmp_path / OUTER]
