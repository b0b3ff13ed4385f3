"""JAVASCRIPT.md tells the truth: its examples print what it says; the types name what the module has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import trio

import server
from dataspace.version import __version__
from server.config.model import Config
from server.daemon.serve import serve
from tests.conformance.driving import MODULE, node

EXAMPLE = re.compile(r"```js\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def page() -> str:
    """Returns the text of the page."""
    return Path(server.__path__[0], "JAVASCRIPT.md").read_text()


def test_the_types_name_what_the_module_exports() -> None:
    entry = MODULE.read_text()
    listed = re.findall(r"^export \{([^}]*)\} from", entry, re.MULTILINE)
    has = re.findall(r"^export (?:async )?(?:class|function|const) (\w+)", entry, re.MULTILINE)
    has += [name for names in listed for name in re.findall(r"\w+", names)]
    kinds = r"^export (?:declare )?(?:class|function|const) (\w+)"
    named = re.findall(kinds, MODULE.with_suffix(".d.ts").read_text(), re.MULTILINE)
    assert len(has) > 40
    assert sorted(has) == sorted(named)


def test_the_package_is_of_this_version_and_has_its_files() -> None:
    folder = MODULE.parent
    package = json.loads((folder / "package.json").read_text())
    assert package["version"] == __version__
    packed = {path.name for name in package["files"] for path in folder.glob(name)}
    assert packed == {path.name for path in folder.iterdir()} - {"package.json"}


def test_every_part_is_short_and_imports_what_is_beside_it() -> None:
    parts = {path.name: path.read_text() for path in MODULE.parent.glob("*.js")}
    for name, text in parts.items():
        assert text.count("\n") <= 500, name
        imported = set(re.findall(r' from "([^"]*)"', text))
        assert imported <= {f"./{other}" for other in parts if other != name}, name


@pytest.mark.slow
async def test_its_examples_print_what_it_says(tmp_path: Path, nursery: trio.Nursery) -> None:
    examples = EXAMPLE.findall(page())
    assert len(examples) == page().count("```js")
    config = Config(("http:127.0.0.1:0",), tmp_path / "data")
    (address,) = await nursery.start(serve, config)
    port = address.rpartition(":")[2]
    for at, (code, expected) in enumerate(examples):
        code = code.replace('"./dataspace.js"', json.dumps(MODULE.as_uri()))
        program = tmp_path / f"{at}.mjs"
        program.write_text(code.replace(":7378", f":{port}"))
        with trio.fail_after(30):
            command = [node(), "--no-warnings", "--experimental-websocket", str(program)]
            done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        assert (done.stdout.decode(), done.stderr.decode()) == (expected, "")
