"""The compiled build: ``DATASPACE_COMPILE=1 pip wheel .`` translates ``index/`` to machine code with mypyc.

It needs a C compiler and mypy, and is opt-in: without the variable the wheel is pure Python for any machine.
The readers of text stay as they are: others build on their classes, which machine code does not allow.
All else about the project is in ``pyproject.toml``.
"""

import os
from glob import glob

from setuptools import setup

if os.environ.get("DATASPACE_COMPILE"):
    from mypyc.build import mypycify

    modules = sorted(
        set(glob("index/**/*.py", recursive=True)) - {"index/patterns/text.py", "index/values/scanner.py"}
    )
    setup(ext_modules=mypycify(modules, opt_level="3", debug_level="0"))
else:
    setup()
