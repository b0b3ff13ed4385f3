"""The JavaScript client is a package for npm, made from the checkout."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from dataspace.version import __version__
from tests.conformance.driving import MODULE, node
from tests.packaging.project import TOP

pytestmark = pytest.mark.slow


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
def test_the_package_for_npm_has_the_client_its_types_and_its_license(tmp_path: Path) -> None:
    for name in ("Makefile", "LICENSE"):
        shutil.copy(TOP / name, tmp_path / name)
    (tmp_path / "server" / "web").mkdir(parents=True)
    shutil.copytree(MODULE.parent, tmp_path / "server" / "web" / "static")
    shutil.copy(MODULE.parents[2] / "JAVASCRIPT.md", tmp_path / "server" / "JAVASCRIPT.md")
    subprocess.run(["make", "-s", "npm"], cwd=tmp_path, check=True, timeout=120, capture_output=True)
    (made,) = (tmp_path / "dist").iterdir()
    assert made.name == f"dataspace-client-{__version__}.tgz"
    with tarfile.open(made) as package:
        names = {name.removeprefix("package/") for name in package.getnames()}
        package.extractall(tmp_path / "node_modules" / "dataspace-client", filter="data")
    assert names >= {
        "dataspace.js",
        "react.js",
        "dataspace.d.ts",
        "react.d.ts",
        "README.md",
        "LICENSE",
        "package.json",
    }
    installed = tmp_path / "node_modules" / "dataspace-client"
    for each in (installed / "package").iterdir():
        shutil.move(each, installed / each.name)
    text = """import { record } from "dataspace-client";
    import { hooks } from "dataspace-client/react";
    console.log(typeof record, typeof hooks);
    """
    (tmp_path / "use.mjs").write_text(text)
    done = subprocess.run([node(), "use.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "function function\n", done.stderr
