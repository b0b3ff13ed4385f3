"""Text: parses and prints values and patterns.

There is one syntax for the command line, configuration, rules, logs and documents; ``TEXT.md`` beside this
file has the grammar.  A pattern is a value, so one language serves both: ``_``, ``$who`` and the like are
short forms of records, in a fact as in a pattern, and an interest is printed as it was written.

Always: ``parse(unparse(v))`` is the same value as ``v``, for every value; a text gives a value or
``ParseError``; both ways take time in proportion to the text.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import datetime
from typing import Final

from index.errors import UsageError
from index.patterns.patterns import ATOM_CLASSES, DISCARD, skeleton
from index.values.atoms import (
    KEYWORDS,
    bytes_text,
    integer_text,
    read_bytes,
    read_number,
    read_string,
    read_time,
    string_text,
    time_text,
)
from index.values.refusals import no_value
from index.values.scanner import WORD, ParseError, Scanner
from index.values.values import DEEPEST, Map, Record, Value, below, key

MAX_DEPTH: Final = 64
"""Default limit of nested levels; as many as the wire carries."""


def parse(text: str, *, depth: int = MAX_DEPTH, elements: int | None = None) -> Value:
    """Returns the value of a text.

    Raises ``ParseError``, which shows the place, for any other text, for more than ``depth`` levels and for
    more than ``elements`` values in all, those inside others included.

    >>> parse('reading("d1", 21.5, [1, 2])')
    Record('reading', 'd1', 21.5, (1, 2))
    """
    return _whole(Reader(text, depth=depth, elements=elements))


def parse_pattern(text: str, *, depth: int = MAX_DEPTH, elements: int | None = None) -> Value:
    """Returns the pattern of a text, which ``patterns.skeleton`` accepts within its limits.

    Raises ``ParseError`` as ``parse`` does, and for a value that is no pattern, such as ``lit()``.

    >>> parse_pattern("speak($who, _)")
    Record('speak', Record('$', 'who', None, Record('_', )), Record('_', ))
    """
    reader = Reader(text, depth=depth, elements=elements)
    pattern = _whole(reader)
    try:
        skeleton(pattern)
    except UsageError as error:
        raise reader.blame(error) from None
    return pattern


def _whole(reader: Reader) -> Value:
    try:
        value = reader.value()
    except RecursionError:
        raise reader.error("nested too deeply for this interpreter") from None
    reader.finish()
    return value


class Reader(Scanner):
    """Reads values one after the other, for grammars that contain them."""

    __slots__ = ("_depth", "_elements", "_special", "_values")

    def __init__(self, text: str, *, depth: int = MAX_DEPTH, elements: int | None = None) -> None:
        super().__init__(text)
        self._depth = min(depth, DEEPEST)
        self._elements = len(text) if elements is None else elements
        self._values = 0
        self._special: list[tuple[int, Value]] = []

    def value(self, level: int = 0) -> Value:
        """Returns the next value after blanks, ``level`` levels deep; raises ``ParseError`` if there is
        none."""
        self.blanks()
        read = _READERS.get(self.ahead())
        if read is None:
            quotes = ": text is in double quotes" if self.ahead() == "'" else ""
            raise self.error(f"expected a value, found {self.found()}{quotes}")
        self._values += 1
        if self._values > self._elements:
            raise self.error(f"more than {self._elements} values")
        return read(self, level)

    def blame(self, error: UsageError) -> ParseError:
        """Returns the error for a value that is no pattern: it points to the part at fault."""
        for at, record in self._special:
            try:
                skeleton(record)
            except UsageError as inner:
                return self.error(str(inner), at)
        return self.error(str(error), 0)

    def _inside(self, level: int) -> int:
        if level >= self._depth:
            raise self.error(f"nested deeper than {self._depth} levels")
        return level + 1

    # -- atoms and labels -----------------------------------------------------------------------------

    def _number(self, _level: int) -> Value:
        return read_number(self)

    def _time(self, _level: int) -> Value:
        return read_time(self)

    def _string(self, level: int) -> Value:
        at = self.position
        text = read_string(self)
        return self._record(text, at, level) if self.ahead() == "(" else text

    def _word(self, level: int) -> Value:
        at = self.position
        if self.text.startswith('b"', at):
            return read_bytes(self)
        word = self.take_match(WORD)
        if word == "_":
            return self._discard(at, level)
        if self.ahead() == "(":
            self._refuse_keyword(word, at)
            return self._record(word, at, level)
        if word not in KEYWORDS:
            raise self.error(
                f'a bare word is no value: text is written "{word[:40]}", a record {word[:40]}(…)', at
            )
        return KEYWORDS[word]

    def _refuse_keyword(self, word: str, at: int) -> None:
        if word in KEYWORDS:
            raise self.error(
                f'{word} is no label: write "{word}"(…) for the text, <{word}>(…) for the value', at
            )

    # -- compounds ------------------------------------------------------------------------------------

    def _record(self, label: Value, at: int, level: int) -> Value:
        """Returns the record whose label, which began at ``at``, has been read and whose parenthesis is
        next."""
        inside = self._inside(level)
        self.position += 1
        known = len(self._special)
        record = Record.of(label, tuple(self._items(")", inside)))
        if label in _SPECIAL:
            if label == "lit":
                del self._special[known:]  # ``lit`` quotes them
            self._special.append((at, record))
        return record

    def _labelled(self, level: int) -> Value:
        at = self.position
        self.position += 1
        label = self.value(self._inside(level))
        self.expect(">")
        if self.ahead() != "(":
            raise self.error(f"expected '(' right behind the label, found {self.found()}")
        return self._record(label, at, level)

    def _sequence(self, level: int) -> Value:
        inside = self._inside(level)
        self.position += 1
        return tuple(self._items("]", inside))

    def _items(self, close: str, level: int) -> list[Value]:
        items: list[Value] = []
        while not self.accept(close):
            items.append(self.value(level))
            if self.expect(",", close) == close:
                break
        return items

    def _map(self, level: int) -> Value:
        inside = self._inside(level)
        self.position += 1
        pairs: list[tuple[Value, Value]] = []
        places: list[int] = []
        while not self.accept("}"):
            places.append(self.position)
            at = self.value(inside)
            self.expect(":")
            pairs.append((at, self.value(inside)))
            if self.expect(",", "}") == "}":
                break
        return self._map_of(pairs, places)

    def _map_of(self, pairs: list[tuple[Value, Value]], places: list[int]) -> Map:
        seen: set[Hashable] = set()
        for (at, _), place in zip(pairs, places, strict=True):
            if key(at) in seen:
                raise self.error("a key that this map already has", place)
            seen.add(key(at))
        return Map.of(pairs)

    # -- patterns -------------------------------------------------------------------------------------

    def _discard(self, at: int, level: int) -> Value:
        self._inside(level)
        named = self._class()
        if self.ahead() == "(":
            raise self.error('a discard has no fields; a record labelled "_" is written "_"(…)', at)
        return Record.of("_", (named,)) if named else DISCARD

    def _capture(self, level: int) -> Value:
        inside = self._inside(level)
        self.position += 1
        name = self.take_match(WORD) or None
        named = self._class()
        sub: Value = DISCARD
        if self.take_here("("):
            sub = self.value(inside)
            self.expect(")")
        else:
            self._inside(inside)
        return Record.of("$", (name, named, sub))

    def _class(self) -> str | None:
        """Returns the class that follows with its colon, or None; after a colon of a map there is a blank."""
        at = self.position
        if not self.take_here(":"):
            return None
        word = self.take_match(WORD)
        if not word:
            self.position = at
            return None
        if word not in ATOM_CLASSES:
            raise self.error(f"{word[:40]!r} is no class, which are {', '.join(ATOM_CLASSES)}", at + 1)
        return word


_SPECIAL: Final = ("_", "$", "lit", "exact")
"""Labels of records that can be malformed as patterns."""

_READERS: Final[dict[str, Callable[[Reader, int], Value]]] = {
    **dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_", Reader._word),
    **dict.fromkeys("-0123456789", Reader._number),
    '"': Reader._string,
    "@": Reader._time,
    "[": Reader._sequence,
    "{": Reader._map,
    "<": Reader._labelled,
    "$": Reader._capture,
}


# -- writing ------------------------------------------------------------------------------------------


def unparse(value: Value) -> str:
    """Returns the text of a value, in one line; raises ``UsageError`` if it nests too deeply for the
    interpreter.

    >>> unparse(Record("Observe", Record("says", Record("$", "who", None, Record("_")), Record("_"))))
    'Observe(says($who, _))'
    """
    try:
        return _text(value, DEEPEST)
    except RecursionError:
        raise UsageError("a value is nested too deeply to be written down") from None


def unparse_pattern(pattern: Value) -> str:
    """Returns the text of a pattern, which is its text as a value."""
    return unparse(pattern)


def _text(value: Value, depth: int) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return string_text(value)
        case int():
            return integer_text(value)
        case Record():
            return _record_text(value, below(depth))
        case float():
            return repr(value)
        case tuple():
            depth = below(depth)
            return f"[{', '.join([_text(each, depth) for each in value])}]"
        case Map():
            depth = below(depth)
            pairs = [f"{_text(at, depth)}: {_text(each, depth)}" for at, each in value.pairs()]
            return f"{{{', '.join(pairs)}}}"
        case bytes():
            return bytes_text(value)
        case datetime():
            return f"@{time_text(value)}"
        case _:  # reachable only against the types
            raise no_value(value)


def _record_text(record: Record, depth: int) -> str:
    label = record.label
    if label == "_" or label == "$":
        short = _discard_text(record.fields) if label == "_" else _capture_text(record.fields, depth)
        if short:
            return short
    return f"{_label_text(label, depth)}({', '.join([_text(each, depth) for each in record.fields])})"


def _label_text(label: Value, depth: int) -> str:
    if not isinstance(label, str):
        return f"<{_text(label, depth)}>"
    bare = WORD.fullmatch(label) and label not in KEYWORDS and label != "_"
    return label if bare else string_text(label)


def _discard_text(fields: tuple[Value, ...]) -> str | None:
    """Returns the short form of a record labelled ``_``, or None if patterns have none for it."""
    match fields:
        case ():
            return "_"
        case (str() as named,) if named in ATOM_CLASSES:
            return f"_:{named}"
        case _:
            return None


def _capture_text(fields: tuple[Value, ...], depth: int) -> str | None:
    """Returns the short form of a record labelled ``$``, or None if patterns have none for it."""
    if len(fields) != 3:
        return None
    name, named, sub = fields
    if name is not None and not (isinstance(name, str) and WORD.fullmatch(name)):
        return None
    if named is not None and not (isinstance(named, str) and named in ATOM_CLASSES):
        return None
    inner = "" if sub == DISCARD else f"({_text(sub, depth)})"
    return f"${name or ''}{f':{named}' if named else ''}{inner}"


__all__ = [
    "parse",
    "parse_pattern",
    "unparse",
    "unparse_pattern",
    "ParseError",
    "Reader",
    "MAX_DEPTH",
]
