"""An extension of griffe, which reads the docstrings: it makes blocks of code of the doctests in them.

It is loaded by mkdocs, in the environment that builds the site.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

PARAGRAPH = re.compile(r"^(?:>>> .*)(?:\n.+)*", re.MULTILINE)


class Doctests(griffe.Extension):  # type: ignore[misc]  # griffe is not there when types are checked
    """Encloses each paragraph that begins with ``>>>``."""

    def on_object(self, *, obj: Any, **_more: Any) -> None:
        """Changes the docstring of what was read."""
        if obj.docstring is not None:
            obj.docstring.value = PARAGRAPH.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
