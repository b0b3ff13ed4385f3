"""Installs pauses in a Python program that a test has started, where it has the tests' checkout."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))
from tests.pauses import install

install()
