"""The scanner: a place in a text, and errors that point to it.

Facts, patterns and rules are read from left to right by readers that look one character ahead.  This file
has their common part, apart from any grammar: blanks and comments, symbols, words, and the error that shows
the line with a caret under the character.

Always: reading never goes back by more than one word, so a text is read in linear time; whatever stands
in a text can be shown in an error, control characters and broken Unicode included.
"""

from __future__ import annotations

import re
from typing import Final
from unicodedata import combining, east_asian_width

from index.errors import UsageError

WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+(?:-[A-Za-z0-9_]++)*+")
"""Identifiers.  A hyphen belongs to one if a letter, digit or underscore follows, ``a - b`` are three."""

_BLANKS: Final = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_SHOWN: Final = 60
"""Characters of a line that an error shows on either side of its position."""


class ParseError(UsageError):
    """A text that says nothing, with the place: ``str`` of it shows the line and a caret.

    ``what`` is the complaint alone, ``position`` counts characters from 0, ``line`` and ``column`` from 1.
    """

    def __init__(self, what: str, text: str, position: int) -> None:
        super().__init__(what, text, position)
        self.what = what
        self.text = text
        self.position = position

    @property
    def line(self) -> int:
        """The number of the line, from 1."""
        return self.text.count("\n", 0, self.position) + 1

    @property
    def column(self) -> int:
        """The number of the character in its line, from 1."""
        return self.position - self._line_start() + 1

    def _line_start(self) -> int:
        return self.text.rfind("\n", 0, self.position) + 1

    def __str__(self) -> str:
        start = self._line_start()
        end = self.text.find("\n", self.position)
        end = len(self.text) if end < 0 else end
        first = max(start, self.position - _SHOWN)
        last = min(end, self.position + _SHOWN)
        before = ("…" if first > start else "") + _visible(self.text[first : self.position])
        after = _visible(self.text[self.position : last].rstrip("\r")) + ("…" if last < end else "")
        caret = " " * sum(map(_width, before)) + "^"
        return f"{self.what} (line {self.line}, column {self.column})\n  {before}{after}\n  {caret}"


def _visible(text: str) -> str:
    """The text as it can be shown anywhere, character for character."""
    return (
        text
        if text.isprintable()
        else "".join([each if each.isprintable() else _stand_in(each) for each in text])
    )


def _stand_in(character: str) -> str:
    return " " if character == "\t" else "\ufffd"


def _width(character: str) -> int:
    """How many columns of a terminal a character takes."""
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


class Scanner:
    """A text and the position up to which it has been read."""

    __slots__ = ("position", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def blanks(self) -> None:
        """Goes past blanks and comments."""
        found = _BLANKS.match(self.text, self.position)
        self.position = found.end() if found else self.position

    def ahead(self) -> str:
        """The next character, or nothing at the end; blanks count."""
        return self.text[self.position : self.position + 1]

    def accept(self, symbol: str) -> bool:
        """Whether a symbol is next behind any blanks; if so, goes past it."""
        self.blanks()
        return self.take_here(symbol)

    def take_here(self, symbol: str) -> bool:
        """Whether a symbol is next without any blanks; if so, goes past it."""
        if not self.text.startswith(symbol, self.position):
            return False
        self.position += len(symbol)
        return True

    def take_match(self, pattern: re.Pattern[str]) -> str:
        """What a regular expression matches right here, or nothing; goes past it."""
        found = pattern.match(self.text, self.position)
        if found is None:
            return ""
        self.position = found.end()
        return found[0]

    def expect(self, *symbols: str) -> str:
        """Goes past one of the symbols, and returns it; ``ParseError`` if another symbol is next."""
        for symbol in symbols:
            if self.accept(symbol):
                return symbol
        raise self.error(f"expected {' or '.join(map(repr, symbols))}, found {self.found()}")

    def finish(self) -> None:
        """Makes sure that nothing follows but blanks; ``ParseError`` otherwise."""
        self.blanks()
        if self.ahead():
            raise self.error(f"expected the end, found {self.found()}")

    def found(self) -> str:
        """The next token, for people."""
        if not self.ahead():
            return "the end of the text"
        word = WORD.match(self.text, self.position)
        return repr(word[0][:40] if word else self.ahead())

    def error(self, what: str, at: int | None = None) -> ParseError:
        """The error to be raised about a position, which is the present one unless given."""
        return ParseError(what, self.text, self.position if at is None else at)
