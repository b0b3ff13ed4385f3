"""Faces: public modules whose names are imported when they are first used.

A Spark executor that wants one plain socket must not load an event loop, so a public module lists where its
names are defined and loads each on demand.  Only faces import upwards (``dataspace.spark`` stands in front of
``relay.spark``), and nothing inside the product imports a face.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def face(module: str, homes: Mapping[str, str]) -> tuple[list[str], Callable[[str], object]]:
    """Returns ``__all__`` and ``__getattr__`` of a public module.

    ``homes`` maps the module that defines names to those names, separated by blanks.  An unknown name raises
    ``AttributeError``, as in any module.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def fetch(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home_of[name]), name)

    return list(home_of), fetch
