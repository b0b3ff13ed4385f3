"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Returns a table; a bar in a cell is one of its characters.

    >>> print(table(("a", "b"), [("1", "2 | 3")]))
    | a | b |
    |---|---|
    | 1 | 2 \\| 3 |
    """
    lines = [heads, ("---",) * len(heads), *rows]
    written = ["| " + " | ".join([cell.replace("|", "\\|") for cell in line]) + " |" for line in lines]
    written[1] = "|" + "---|" * len(heads)
    return "\n".join(written)


def code(text: str) -> str:
    """Returns text as code, or nothing for none."""
    return f"`{text}`" if text else ""


def one_line(text: str | None) -> str:
    """Returns the first paragraph of a docstring in one line."""
    return " ".join((text or "").strip().split("\n\n")[0].split())
