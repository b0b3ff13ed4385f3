"""The emitter: functions out of text that is written at run time.

The readers of the index, the functions of rules and the selections of the log are generated for one pattern
or one rule, because a general loop over all possible steps takes longer than the work itself.  All of them
are made here, and nowhere else.

Always: input from outside is bound to a name and never part of the text; equal texts are compiled once; a
traceback or a debugger shows the lines of a recently compiled function.
"""

from __future__ import annotations

import linecache
from collections import OrderedDict
from collections.abc import Mapping
from itertools import count
from types import CodeType
from typing import Any, Final

TEXTS: Final = 2048
"""Compiled texts that are kept, with their lines.  Equal structure is equal text, so there are few."""

_codes: Final[OrderedDict[str, CodeType]] = OrderedDict()
_numbers: Final = count(1)


def emitted(text: str, bound: Mapping[str, object], *, of: str) -> dict[str, Any]:
    """Returns all names of a text that was carried out: those ``bound``, and the functions that it defines.

    ``of`` is whose text it is, for tracebacks.

    >>> emitted("def double(n):\\n    return n * two\\n", {"two": 2}, of="doctest")["double"](4)
    8
    """
    names = dict(bound)
    exec(_compiled(text, of), names)  # words, numbers and operators of this product only: see above
    return names


def _compiled(text: str, of: str) -> CodeType:
    code = _codes.get(text)
    if code is None:
        file = f"<{of} text {next(_numbers)}>"
        code = _codes[text] = compile(text, file, "exec")
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        if len(_codes) > TEXTS:
            linecache.cache.pop(_codes.popitem(last=False)[1].co_filename, None)
    return code
