"""A project of somebody else, in which the built distribution is installed.

It has an ``index.py``, a ``relay`` and a ``server`` of its own, which a program that is started in its folder
finds before anything that is installed; each raises when it is imported.

    python -m tests.packaging.project FOLDER

makes one with the tests in it, rewritten for what is installed, and prints the path of its Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from relocate import INNER, OUTER, modules, rewrite_files

TOP: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = (OUTER, *INNER, "pyproject.toml", "setup.py", "relocate.py", "README.md", "LICENSE")
OF_THE_CHECKOUT: Final = (
    "browser",
    "docs",
    "packaging",
    "recipes",
    "test_guarantees.py",
    "test_imports.py",
    "test_public_names.py",
    "test_structure.py",
    "__pycache__",
)
"""Tests of the checkout and of its files, which a wheel does not have."""

HOSTILE: Final = "raise ImportError(f'{__name__} of another project was imported')\n"


def copy_sources(folder: Path) -> Path:
    """Copies what a build needs, so that it leaves nothing in the checkout."""
    folder.mkdir(parents=True)
    for name in SOURCES:
        if (TOP / name).is_dir():
            shutil.copytree(TOP / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(TOP / name, folder)
    return folder


def build_sdist(source: Path, folder: Path) -> Path:
    """Builds the sdist of a copy of the checkout, as any front end does."""
    folder.mkdir(exist_ok=True)
    code = "import sys, setuptools.build_meta as b; b.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", code, str(folder), cwd=source)
    (made,) = folder.glob("*.tar.gz")
    return made


def build_wheel(source: Path, folder: Path) -> Path:
    """Builds a wheel from a folder or an sdist."""
    options = ["-q", "--no-index", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
    run(sys.executable, "-m", "pip", "wheel", *options, "-w", str(folder), str(source))
    (made,) = folder.glob("*.whl")
    return made


class Project:
    """A folder with hostile modules, and an environment with the wheel and nothing else of ours."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder: Final = folder / "project"
        self._environment = folder / "environment"
        self.python: Final = self._environment / "bin" / "python"
        self._make_hostile()
        run(sys.executable, "-m", "venv", "--without-pip", str(self._environment))
        self.install(wheel)
        self._borrow_dependencies()

    def _make_hostile(self) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "index.py").write_text(HOSTILE)
        for name in ("relay", "server"):
            (self.folder / name).mkdir()
            (self.folder / name / "__init__.py").write_text(HOSTILE)

    def _borrow_dependencies(self) -> None:
        """Lets it import what is installed for these tests, but not what is installed from the checkout.

        A folder that is on the path because a ``.pth`` file names it is not searched for such files itself.
        """
        ours = [path for path in sys.path if Path(path).name == "site-packages"]
        (self.site / "dependencies.pth").write_text("\n".join(ours) + "\n")

    @property
    def site(self) -> Path:
        """Where packages are installed."""
        (found,) = self._environment.glob("lib/python*/site-packages")
        return found

    def install(self, wheel: Path) -> None:
        """Installs a wheel without its dependencies; Python compiles what is imported."""
        self._pip("install", "--no-index", "--no-deps", "--no-compile", str(wheel))

    def uninstall(self) -> None:
        """Removes the distribution again."""
        self._pip("uninstall", "-y", "dataspace-server")

    def _pip(self, *words: str) -> None:
        run(sys.executable, "-m", "pip", "--python", str(self.python), "-qq", *words)

    def run(self, *words: str) -> str:
        """Runs its Python in its folder, and returns what that prints."""
        return run(str(self.python), *words, cwd=self.folder, env=self.variables)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of its programs: no path but its own leads anywhere.

        A test that ran before in this process may have named the checkout's Python for Spark's workers.
        """
        return {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")
        }

    def copy_tests(self) -> None:
        """Copies examples and tests that can run against a wheel, with the names that modules have there."""
        ignored = shutil.ignore_patterns(*OF_THE_CHECKOUT)
        for name in ("examples", "tests"):
            shutil.copytree(TOP / name, self.folder / name, ignore=ignored)
            rewrite_files(self.folder / name, modules(TOP))
        shutil.copy(TOP / "pyproject.toml", self.folder)


def run(*command: str, cwd: Path = TOP, env: dict[str, str] | None = None) -> str:
    """Runs a program to its end and returns what it prints; raises ``AssertionError`` if it fails."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def main(folder: Path) -> None:
    """Builds, installs, and copies the tests."""
    source = copy_sources(folder / "source")
    project = Project(folder, build_wheel(build_sdist(source, folder / "sdist"), folder / "wheel"))
    project.copy_tests()
    print(project.python)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
