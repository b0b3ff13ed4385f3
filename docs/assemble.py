"""Puts the site together: ``python -m docs.assemble FOLDER`` writes the pages, and ``mkdocs.yml`` with them.

Documents that lie beside the code are taken as they are; only their links are made to lead to the places
that the site has for them.  A link to a file that is no page becomes its text.  In a page of the site a line
``<!-- from FILE: HEADING -->`` stands for a section of another document.

Always: a link to a file that is not there is an error that names the page.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from docs.plan import LANGUAGES, TOP, Page, sections
from docs.reference import generate

LINK: Final = re.compile(r"\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE: Final = re.compile(r"^(```|~~~)")
RANKS: Final = {"words.md": 4, "recipes/beside/": 0.1, "internals/": 0.3, "project/": 0.5}
"""How much more, or less, pages count in search than others: by the beginning of their places.

Who searches for a lock looks for a lock here, not for the program that has one in Redis.
"""

FROM: Final = re.compile(r"^<!-- from (\S+): (.+) -->$", re.MULTILINE)


class DeadLink(Exception):
    """A link leads to a file that is not there."""


def assembled() -> Iterator[tuple[str, str]]:
    """Yields the place and the text of each page."""
    pages = [page for _, group in sections() for page in group]
    place_of = {page.file: page.place for page in pages if page.file is not None}
    made = generate()
    for page in pages:
        text = made[page.place] if page.file is None else _text(page, page.file, place_of)
        yield page.place, _ranked(page.place, text)


def _ranked(place: str, text: str) -> str:
    """Returns the text of a page, after its rank in search where that has one.

    >>> _ranked("internals/wire.md", "# Wire")
    '---\\nsearch: {boost: 0.3}\\n---\\n# Wire'
    """
    ranks = [rank for begin, rank in RANKS.items() if place.startswith(begin)]
    return f"---\nsearch: {{boost: {ranks[0]}}}\n---\n{text}" if ranks else text


def _text(page: Page, file: Path, place_of: dict[Path, str]) -> str:
    """Returns the text of a page with what it includes, and with links for the site."""
    if language := LANGUAGES.get(file.suffix):
        return f"# {page.title}\n\n```{language}\n{file.read_text(encoding='utf-8')}```\n"
    text = _linked(file.read_text(encoding="utf-8"), file, page.place, place_of)

    def include(found: re.Match[str]) -> str:
        source = TOP / found[1]
        return _linked(section(source, found[2]), source, page.place, place_of)

    return FROM.sub(include, text)


def section(file: Path, heading: str) -> str:
    """Returns what is under a heading of a document, without the heading itself."""
    text = file.read_text(encoding="utf-8")
    begin = re.search(rf"^(#+) {re.escape(heading)}$\n", text, re.MULTILINE)
    if begin is None:
        raise DeadLink(f"{file.relative_to(TOP)} has no section {heading!r}")
    rest = text[begin.end() :]
    end = re.search(rf"^#{{1,{len(begin[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start() if end else None].strip()


def _linked(text: str, file: Path, place: str, place_of: dict[Path, str]) -> str:
    """Returns a text whose links lead to the pages of the site; code stays as it is."""
    lines, code = [], False
    for line in text.split("\n"):
        code ^= bool(FENCE.match(line))
        lines.append(line if code or line.startswith("    ") else _link_line(line, file, place, place_of))
    return "\n".join(lines)


def _link_line(line: str, file: Path, place: str, place_of: dict[Path, str]) -> str:
    def link(found: re.Match[str]) -> str:
        label, target = found[1], found[2]
        name, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not name:
            return found[0]
        aim = Path(posixpath.normpath((file.parent / name).as_posix()))
        if aim not in place_of and _is_place(aim):
            return found[0]  # written for the site
        if not aim.exists():
            raise DeadLink(f"{file.relative_to(TOP)}: {target} is not there")
        if aim not in place_of:
            return label if "`" in label else f"`{label}`"
        there = posixpath.relpath(place_of[aim], posixpath.dirname(place) or ".")
        return f"[{label}]({there}{'#' * bool(anchor)}{anchor})"

    return LINK.sub(link, line)


def _is_place(aim: Path) -> bool:
    """True if a link from a page of the site names a place of the site, which mkdocs checks."""
    pages = TOP / "docs" / "pages"
    return aim.is_relative_to(pages) and aim.relative_to(pages).as_posix() in _places()


def _places() -> set[str]:
    return {page.place for _, group in sections() for page in group}


def navigation() -> list[object]:
    """Returns what mkdocs calls ``nav``; a section without pages is left out."""
    return [{title: [{each.title: each.place} for each in pages]} for title, pages in sections() if pages]


def main(folder: Path) -> None:
    """Writes the pages and the configuration."""
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    for place, text in assembled():
        (pages / place).parent.mkdir(parents=True, exist_ok=True)
        (pages / place).write_text(text, encoding="utf-8")
    shutil.copytree(TOP / "docs" / "assets", pages / "assets")
    stated = (TOP / "docs" / "mkdocs.yml").read_text(encoding="utf-8").replace("$TOP", str(TOP))
    nav = json.dumps(navigation(), ensure_ascii=False, indent=1)  # JSON is YAML
    (folder / "mkdocs.yml").write_text(f"{stated}\nnav: {nav}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
