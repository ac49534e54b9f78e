"""The pages of the help: Markdown files that ship with the program, so that they can be read anywhere else too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from app.store.search import fold
from engine.paths import resource

ORDER = (
    "getting-started",
    "chatting",
    "drafter",
    "statistics",
    "models",
    "settings",
    "terminal",
    "troubleshooting",
    "checkpoints",
    "privacy",
)
"""Names of the pages as they are listed; each is a file with `.md` after its name."""
_FIGURE = re.compile(r"^!\[(?P<alt>[^\]]+)\]\((?P<file>[\w-]+\.svg)\)$", re.MULTILINE)
_LINK = re.compile(r"(?P<name>[\w-]+)\.md")


@dataclass(frozen=True, slots=True)
class FigurePart:
    """A drawing between two passages; `text` says the same in words."""

    file: Path
    text: str


@dataclass(frozen=True)
class HelpPage:
    """One page. `source` is Markdown whose first line is the title as a heading."""

    name: str
    source: str
    folder: Path

    @cached_property
    def title(self) -> str:
        return self.source.split("\n", 1)[0].removeprefix("# ").strip()

    @cached_property
    def parts(self) -> Sequence[str | FigurePart]:
        """Passages of Markdown and the drawings between them."""
        parts: list[str | FigurePart] = []
        at = 0
        for match in _FIGURE.finditer(self.source):
            parts.append(self.source[at : match.start()].strip())
            parts.append(FigurePart(self.folder / match["file"], match["alt"]))
            at = match.end()
        parts.append(self.source[at:].strip())
        return tuple(part for part in parts if part)

    @cached_property
    def _folded(self) -> str:
        return fold(self.source)

    def has(self, query: str) -> bool:
        """Whether every word of `query` occurs, without regard to case and accents."""
        return all(word in self._folded for word in fold(query).split())


def load_pages() -> Sequence[HelpPage]:
    """All pages in the order of the list.

    Raises:
        UserError: the folder is missing.
    """
    folder = resource("help")
    return tuple(HelpPage(name, (folder / f"{name}.md").read_text(encoding="utf-8"), folder) for name in ORDER)


def page_of(link: str) -> str | None:
    """Name of the page that a link leads to; None for any other address."""
    match = _LINK.fullmatch(link)
    return match["name"] if match is not None and match["name"] in ORDER else None
