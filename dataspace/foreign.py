"""Foreign text: what other clients have written, as it may be shown in a line of a terminal or of a log, and
what a person has written into a file.

Always: a line of foreign text stays one line, and moves no cursor, sets no colour and turns no writing
around.
"""

from __future__ import annotations

import json
from os import PathLike


def tame(line: str) -> str:
    r"""Returns a line of foreign text with its control characters and line ends escaped.

    >>> print(tame("\x1b[2J\u202eoh" + chr(10)))
    \u001b[2J\u202eoh\n
    """
    if line.isprintable():
        return line
    return "".join([each if each.isprintable() else json.dumps(each)[1:-1] for each in line])


def tame_lines(text: str) -> str:
    r"""Returns a text of several lines, whose writer has escaped the line ends of others, with its other
    control characters escaped.

    >>> print(tame_lines("one" + chr(10) + "two\x1b[2J"))
    one
    two\u001b[2J
    """
    if text.isprintable():
        return text
    return "\n".join(map(tame, text.split("\n")))


def read_utf8(path: str | PathLike[str], most: int = -1) -> str:
    """Returns the text of a file that a person has written, at most so many characters, without a mark of
    UTF-8 before it.

    Raises ``OSError``, and ``UnicodeError`` with what to do for a file in another encoding.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(most)
    except UnicodeDecodeError as error:
        with open(path, "rb") as raw:
            head = raw.read(64)
        is_wide = b"\0" in head or head[:2] in (b"\xff\xfe", b"\xfe\xff")
        found = "it is UTF-16" if is_wide else f"byte {error.start} is none: {error.reason}"
        raise UnicodeError(f"the file must be UTF-8, and {found}; save it as UTF-8") from None
    if "\0" in text[:64] and not 0 <= most <= len(text):  # a device, for instance, has no end
        raise UnicodeError("the file must be UTF-8, and has NULs, as UTF-16 does; save it as UTF-8")
    return text
