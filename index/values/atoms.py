"""Atoms as text: numbers, text, bytes and times, in both directions.

This file has the meaning of one token and the notation of one atom; ``text`` nests them.  JSON shares the
forms of integers and times.  Strings are JSON's strings, so that any JSON text is a value's text.

Always: a written atom is read back as the same atom, stays within one line, and shows no character that a
terminal could take for a command; the time is linear, so huge integers are written in base 16.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final

from index.values.scanner import Scanner

KEYWORDS: Final[dict[str, bool | float | None]] = {
    "true": True,
    "false": False,
    "null": None,
    "nan": math.nan,
    "inf": math.inf,
}
"""The words that are values by themselves, and therefore no labels unless quoted."""

DECIMAL_BITS: Final = 2048
"""Integers of more bits are written in base 16: base 10 takes quadratic time, and Python refuses it."""

DECIMAL_DIGITS: Final = 640
"""The digits that Python reads in base 10 however it is set up."""

# -- numbers ------------------------------------------------------------------------------------------

_NUMBER: Final = re.compile(
    r"-?(?:0x[0-9a-fA-F]++|(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+|inf)(?![A-Za-z0-9_]|\.[0-9])"
)
_INTEGER: Final = re.compile(r"-?(?:0x[0-9a-fA-F]++|(?:0|[1-9][0-9]*+))")
_LIKE_NUMBER: Final = re.compile(r"[-+A-Za-z0-9_.]++")


def read_number(scanner: Scanner) -> int | float:
    """The number that begins here: ``12``, ``-0x1f``, ``2.5``, ``1e-07``, ``-inf``."""
    at = scanner.position
    text = scanner.take_match(_NUMBER)
    if not text:
        found = scanner.take_match(_LIKE_NUMBER)[:40]
        raise scanner.error(f"{found!r} is no number", at)
    if _INTEGER.fullmatch(text) is None:
        return _float(scanner, text, at)
    number = integer(text)
    if number is None:
        raise scanner.error(
            f"an integer of {len(text)} digits; with more than {DECIMAL_DIGITS} write it in base 16, 0x…",
            at,
        )
    return number


def _float(scanner: Scanner, text: str, at: int) -> float:
    number = float(text)
    if math.isinf(number) and not text.endswith("inf"):
        raise scanner.error("a number beyond the range of a float; infinity is written inf", at)
    return number


def integer(text: str) -> int | None:
    """The integer that a text means in base 10 or, after ``0x``, in base 16; None if it means none.

    >>> integer("-0xff"), integer("07")
    (-255, None)
    """
    if _INTEGER.fullmatch(text) is None:
        return None
    if "x" in text:
        return int(text, 16)
    return int(text) if len(text.lstrip("-")) <= DECIMAL_DIGITS else None


def integer_text(number: int) -> str:
    """The text of an integer; O(digits), since huge ones are written in base 16."""
    return str(number) if number.bit_length() <= DECIMAL_BITS else hex(number)


# -- text ---------------------------------------------------------------------------------------------

_STRING: Final = re.compile(r'"([^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+)"')
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})(?:\\u([dD][c-fC-F][0-9a-fA-F]{2}))?|(.))", re.DOTALL)
_SIMPLE: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SHORT: Final = {character: f"\\{letter}" for letter, character in _SIMPLE.items() if letter != "/"}


def read_string(scanner: Scanner) -> str:
    """The string that begins here, escapes resolved; raises ``ParseError`` at the escape that is wrong."""
    start = scanner.position + 1
    body = _body(scanner)
    if "\\" in body:
        body = _unescaped(scanner, body, start)
    elif not body.isascii():
        _refuse_surrogates(scanner, body, start)
    return body


def _body(scanner: Scanner) -> str:
    """What stands between the quotes that open here."""
    found = _STRING.match(scanner.text, scanner.position)
    if found is None:
        raise _unclosed(scanner)
    scanner.position = found.end()
    return found[1]


_UNCLOSED: Final = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+')


def _unclosed(scanner: Scanner) -> Exception:
    at = scanner.position
    scanner.take_match(_UNCLOSED)
    stop = scanner.ahead()
    if stop and stop not in "\n\r\\":
        return scanner.error(f"a control character in a string is written as an escape, \\u{ord(stop):04x}")
    return scanner.error('a string that is not closed by "', at)


def _unescaped(scanner: Scanner, body: str, start: int) -> str:
    def meaning(found: re.Match[str]) -> str:
        high, low, letter = found.groups()
        if letter is not None:
            if letter not in _SIMPLE:
                raise scanner.error(f"unknown escape {found[0]!r}", start + found.start())
            return _SIMPLE[letter]
        return _character(int(high, 16), low)

    text = _ESCAPE.sub(meaning, body)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise scanner.error("half a surrogate pair is no character", start - 1) from None
    return text


def _character(code: int, low: str | None) -> str:
    if low is None:
        return chr(code)
    if 0xD800 <= code < 0xDC00:
        return chr(0x10000 + ((code - 0xD800) << 10) + (int(low, 16) - 0xDC00))
    return chr(code) + chr(int(low, 16))


def _refuse_surrogates(scanner: Scanner, body: str, start: int) -> None:
    try:
        body.encode()
    except UnicodeEncodeError as error:
        raise scanner.error("half a surrogate pair is no character", start + error.start) from None


def string_text(text: str) -> str:
    r"""A string in quotes; what cannot be printed is escaped as in JSON.

    >>> print(string_text('say "ü"\n'))
    "say \"ü\"\n"
    """
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join([_SHORT.get(each) or _shown(each) for each in text])}"'


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


# -- bytes --------------------------------------------------------------------------------------------

_BYTE_ESCAPE: Final = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_SIMPLE_BYTES: Final = {b'"': b'"', b"\\": b"\\", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_BYTE_TEXTS: Final = [chr(code) if 0x20 <= code < 0x7F else f"\\x{code:02x}" for code in range(256)]
_BYTE_TEXTS[ord('"')], _BYTE_TEXTS[ord("\\")] = '\\"', "\\\\"
_BYTE_TEXTS[ord("\n")], _BYTE_TEXTS[ord("\r")], _BYTE_TEXTS[ord("\t")] = "\\n", "\\r", "\\t"


def read_bytes(scanner: Scanner) -> bytes:
    """The bytes whose ``b`` begins here."""
    scanner.position += 1
    start = scanner.position + 1
    body = _body(scanner)
    if not body.isascii():
        at = next(at for at, each in enumerate(body) if not each.isascii())
        raise scanner.error("bytes are ASCII characters and escapes such as \\xff", start + at)

    def meaning(found: re.Match[bytes]) -> bytes:
        if found[1] is not None:
            return bytes.fromhex(found[1].decode())
        if found[2] not in _SIMPLE_BYTES:
            raise scanner.error(f"unknown escape {found[0].decode()!r} in bytes", start + found.start())
        return _SIMPLE_BYTES[found[2]]

    return _BYTE_ESCAPE.sub(meaning, body.encode())


def bytes_text(octets: bytes) -> str:
    r"""Bytes in quotes behind a ``b``; all but printable ASCII is escaped.

    >>> print(bytes_text(b"\x00A"))
    b"\x00A"
    """
    return f'b"{"".join([_BYTE_TEXTS[each] for each in octets])}"'


# -- times --------------------------------------------------------------------------------------------

_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,6})?(Z|[-+][0-9]{2}:[0-9]{2})"
)
_LIKE_TIME: Final = re.compile(r"[-+:.A-Za-z0-9]*+")


def read_time(scanner: Scanner) -> datetime:
    """The time whose ``@`` is here."""
    at = scanner.position
    scanner.position += 1
    text = scanner.take_match(_TIME)
    found = time(text)
    if found is None or scanner.ahead().isalnum():
        text += scanner.take_match(_LIKE_TIME)
        raise scanner.error(f"{text[:40]!r} is no time, which is written @2026-01-31T23:59:59.5Z", at)
    return found


def time(text: str) -> datetime | None:
    """The time that a text means, taken to UTC; None if it means none.

    >>> time("2026-01-01T01:00:00+01:00")
    datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)
    """
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    day, fraction, zone = found.groups()
    try:
        return datetime.fromisoformat(f"{day}{(fraction or '.').ljust(7, '0')}{zone}").astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def time_text(moment: datetime) -> str:
    """A time in UTC, to the second, or to the microsecond where there are any.

    >>> time_text(datetime(2026, 1, 1, microsecond=5, tzinfo=UTC))
    '2026-01-01T00:00:00.000005Z'
    """
    return f"{moment.replace(tzinfo=None).isoformat()}Z"
