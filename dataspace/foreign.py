"""Foreign text: what other clients have written, as it may be shown in a line of a terminal or of a log.

Always: a line of foreign text stays one line, and moves no cursor, sets no colour and turns no writing
around.
"""

from __future__ import annotations

import json


def tame(line: str) -> str:
    """Returns a line of foreign text with its control characters and line ends escaped.

    >>> tame("\x1b[2J\u202eoh\n")
    '\\\\u001b[2J\\\\u202eoh\\\\n'
    """
    if line.isprintable():
        return line
    return "".join([each if each.isprintable() else json.dumps(each)[1:-1] for each in line])


def tame_lines(text: str) -> str:
    """Returns a text of several lines, whose writer has escaped the line ends of others, with its other
    control characters escaped.

    >>> tame_lines("one\ntwo\x1b[2J")
    'one\\ntwo\\\\u001b[2J'
    """
    if text.isprintable():
        return text
    return "\n".join(map(tame, text.split("\n")))
