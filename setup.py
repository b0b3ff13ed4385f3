"""The build: a wheel holds one package, ``dataspace``, with ``index``, ``relay`` and ``server`` inside it.

``build_py`` copies the four packages of the checkout and relocates the copy (``relocate.py``).  An sdist
keeps the layout of the checkout, so a wheel that is built from it is the same.  An editable install keeps it
as well, so it takes all four names.

``DATASPACE_COMPILE=1 pip wheel .`` also translates the index to machine code with mypyc.  That needs a C
compiler and mypy, and is opt-in: without the variable the wheel is pure Python for any machine.  The readers
of text stay as they are: other classes are derived from theirs, which machine code does not allow.  So does
each ``__init__.py``: the library of all compiled files is inside the package, and is loaded after it.
"""

import os
import shutil
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import Distribution, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

sys.path.insert(0, str(Path(__file__).parent))  # a build backend does not look for modules here
from relocate import INNER, OUTER, relocate

COMPILE = bool(os.environ.get("DATASPACE_COMPILE"))
PLAIN = {"text.py", "scanner.py", "__init__.py"}


class Relocated(build_py):
    """Copies the packages, and relocates the copy."""

    def run(self):
        if not self.editable_mode:
            # What an earlier build relocated is newer than its source, so it would not be copied again.
            for name in (OUTER, *INNER):
                shutil.rmtree(Path(self.build_lib, name), ignore_errors=True)
        super().run()
        if not self.editable_mode:
            relocate(Path(self.build_lib))

    def get_source_files(self):
        return [*super().get_source_files(), "relocate.py"]


class OneName(egg_info):
    """Metadata that name the one package which is installed."""

    def run(self):
        super().run()
        Path(self.egg_info, "top_level.txt").write_text(f"{OUTER}\n")


class CompiledIndex(build_ext):
    """Compiles what ``build_py`` has relocated by then, as one group, so that calls across files stay direct.

    mypyc reads a copy under an empty ``dataspace``, because it would check all that the real one imports.
    """

    def run(self):
        from mypyc.build import mypycify

        if self.editable_mode:
            raise SystemExit("an editable install is not compiled: unset DATASPACE_COMPILE, or build a wheel")
        with TemporaryDirectory() as folder:
            top = Path(folder, OUTER, "index")
            shutil.copytree(Path(self.build_lib, OUTER, "index"), top)
            (top.parent / "__init__.py").touch()
            files = sorted(path for path in top.rglob("*.py") if path.name not in PLAIN)
            with chdir(folder):
                self.distribution.ext_modules = mypycify(
                    ["--config-file=", *(str(path.relative_to(folder)) for path in files)],
                    opt_level="3",
                    debug_level="0",
                    group_name=f"{OUTER}.index.compiled",
                    target_dir=str(Path(folder, "c")),
                )
            command = build_ext(self.distribution)  # a new one, because this one was set up before
            command.ensure_finalized()
            command.run()


class Build(Distribution):
    """What is built; a compiled wheel is for one kind of machine."""

    def has_ext_modules(self):
        return COMPILE


if __name__ == "__main__":
    commands = {"build_py": Relocated, "egg_info": OneName}
    setup(distclass=Build, cmdclass=commands | ({"build_ext": CompiledIndex} if COMPILE else {}))
