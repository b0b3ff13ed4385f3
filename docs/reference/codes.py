"""The page of codes: what each means, what a Python program gets, and the status over HTTP.

The meanings are those of WIRE.md, whose table a test holds equal to the code; the statuses are the program's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import dataspace
from docs.reference.tables import code, table
from server.web.routes.problems import STATUS

HEAD: Final = """\
# Error codes

Every refusal has a *code*, which is stable and for programs, and a text for people. In Python it is
`error.code` of `Refused` (nothing happened, the session goes on) or of `ProtocolError` (the session has
ended). Over HTTP it is `code` of the problem, with the status shown. The column *in* names the packet: `Bye`
ends the session, `Error` a stream, `Refusal` is about a turn, `Denied` about a request.
"""

ROW: Final = re.compile(r"^\| ((?:`[\w-]+`(?:, )?)+) \| ([^|]+) \| (.+) \|$", re.MULTILINE)


def page() -> str:
    """Returns the page."""
    rows = [
        (f"`{name}`", where, code(str(STATUS.get(name, ""))), meaning) for name, where, meaning in known()
    ]
    return f"{HEAD}\n{table(('code', 'in', 'HTTP', 'meaning'), rows)}\n"


def known() -> Iterator[tuple[str, str, str]]:
    """Yields each code with the packets that carry it and its meaning."""
    text = Path(dataspace.__file__).with_name("WIRE.md").read_text(encoding="utf-8")
    for names, where, meaning in ROW.findall(text.split("\n## 4. Codes\n")[1].split("\n## ")[0]):
        for name in re.findall(r"`([\w-]+)`", names):
            yield name, where, meaning
