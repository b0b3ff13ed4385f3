"""The compiled build: ``DATASPACE_COMPILE=1 pip wheel .`` translates ``index/`` to machine code with mypyc.

It needs a C compiler and mypy, and is opt-in: without the variable the wheel is pure Python for any machine.
All else about the project is in ``pyproject.toml``.
"""

import os
from glob import glob

from setuptools import setup

if os.environ.get("DATASPACE_COMPILE"):
    from mypyc.build import mypycify

    setup(ext_modules=mypycify(sorted(glob("index/*.py")), opt_level="3", debug_level="0"))
else:
    setup()
