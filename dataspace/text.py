"""Text: values and patterns written and read (index/TEXT.md)."""

from index.patterns.text import ParseError, parse, parse_pattern, unparse, unparse_pattern

__all__ = [
    "ParseError",
    "parse",
    "parse_pattern",
    "unparse",
    "unparse_pattern",
]
