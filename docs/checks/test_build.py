"""The build finds what is wrong with a page, and its pages ask nobody else for anything."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from docs.plan import TOP

MKDOCS: Final = Path(sys.prefix) / "docs" / "bin" / "mkdocs"
"""The one of `.venv/docs`, which `make docs` makes."""

GOOD: Final = {
    "index.md": "# Home\n\n[other](other.md#there)\n",
    "other.md": "# Other\n\n## There\n",
    "assets/site.css": "",
}


def built(
    folder: Path, pages: dict[str, str], nav: str = "[index.md, other.md]"
) -> subprocess.CompletedProcess[str]:
    """Builds a small site with the settings of the real one."""
    for name, text in pages.items():
        (folder / "pages" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "pages" / name).write_text(text)
    stated = (TOP / "docs" / "mkdocs.yml").read_text().replace("$TOP/site", str(folder / "site"))
    (folder / "mkdocs.yml").write_text(f"{stated.replace('$TOP', str(TOP))}\nnav: {nav}\n")
    command = [str(MKDOCS), "build", "-f", str(folder / "mkdocs.yml")]
    return subprocess.run(command, capture_output=True, text=True, env={"NO_MKDOCS_2_WARNING": "1"})


def test_nothing_is_fetched_from_elsewhere(tmp_path: Path) -> None:
    done = built(tmp_path, GOOD)
    assert done.returncode == 0, done.stderr
    for page in (tmp_path / "site").glob("*.html"):
        fetched = re.findall(
            r"<(?:script|img|iframe)[^>]*\ssrc=\"?([^\s\">]+)|<link[^>]*\shref=\"?([^\s\">]+)",
            page.read_text(),
        )
        assert fetched and not [each for pair in fetched for each in pair if "//" in each]


@pytest.mark.parametrize(
    ("page", "text", "said"),
    [
        ("index.md", "[x](gone.md)", "gone.md"),
        ("index.md", "[x](other.md#gone)", "#gone"),
        ("index.md", "[x](#gone)", "#gone"),
        ("third.md", "# Third", "third.md"),
        ("index.md", "::: dataspace.no_such_name", "no_such_name"),
    ],
)
def test_a_mistake_ends_the_build(tmp_path: Path, page: str, text: str, said: str) -> None:
    done = built(tmp_path, GOOD | {page: text})
    assert done.returncode == 1
    assert said in done.stderr
