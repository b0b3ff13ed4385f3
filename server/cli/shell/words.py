"""The words of a line at the prompt.

At the prompt facts need no quotes, as they do in a shell: a blank parts words only outside of brackets and
of text.  A word in single quotes, as it is pasted from a shell, is what the quotes hold.

>>> words_of('assert task(1, "a b") "x" --durable me')
['assert', 'task(1, "a b")', '"x"', '--durable', 'me']
>>> words_of("get 'task($n, _)' &")
['get', 'task($n, _)', '&']
"""

from __future__ import annotations

from typing import Final

_OPENING: Final = "([{"
_CLOSING: Final = ")]}"


def words_of(line: str) -> list[str]:
    """Returns the words; brackets or text that are not closed are for the parser of facts to refuse."""
    words: list[str] = []
    word, depth, at = "", 0, 0
    while at < len(line):
        each = line[at]
        if each == "'" and not word and line.find("'", at + 1) > 0:
            end = line.index("'", at + 1)
            words.append(line[at + 1 : end])
            at = end + 1
            continue
        if each == '"':
            end = _text_end(line, at)
            word += line[at:end]
            at = end
            continue
        if each.isspace() and depth <= 0:
            words += [word] if word else []
            word = ""
        else:
            depth += (each in _OPENING) - (each in _CLOSING)
            word += each
        at += 1
    return [*words, word] if word else words


def _text_end(line: str, at: int) -> int:
    """Returns where the text ends that begins here with a double quote."""
    at += 1
    while at < len(line) and line[at] != '"':
        at += 2 if line[at] == "\\" else 1
    return min(at + 1, len(line))


def parted(words: list[str]) -> tuple[list[str], list[str]]:
    """Returns the words before the first option, and the options.

    >>> parted(["task($n)", "--as-of", "3"])
    (['task($n)'], ['--as-of', '3'])
    """
    at = next((at for at, word in enumerate(words) if word.startswith("--")), len(words))
    return words[:at], words[at:]
