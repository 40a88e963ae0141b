"""Reads a Markdown page: its code blocks, its code in running text, its links, headings and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ROW = re.compile(r"^\|(.+)\|$")


@dataclass(frozen=True)
class Block:
    """Code between two fences. `line` is the line of the page on which it begins."""

    language: str
    text: str
    line: int

    @property
    def title(self) -> str:
        """Its first line, where that is a comment."""
        first = self.text.partition("\n")[0]
        return first.removeprefix("#").strip() if first.startswith("#") else ""


@dataclass(frozen=True)
class Page:
    path: Path
    text: str

    @classmethod
    def read(cls, path: Path) -> Page:
        return cls(path, path.read_text(encoding="utf-8"))

    @property
    def prose(self) -> str:
        """The page with its blocks blanked; lines keep their numbers."""
        return FENCE.sub(lambda found: "\n" * found[0].count("\n"), self.text)

    def blocks(self, language: str | None = None) -> list[Block]:
        found = [Block(one[1], one[2], self.line_at(one.start(2))) for one in FENCE.finditer(self.text)]
        return [block for block in found if language in (None, block.language)]

    def spans(self) -> Iterator[tuple[int, str]]:
        """Code in running text, each with its line."""
        prose = self.prose
        for found in SPAN.finditer(prose):
            yield prose.count("\n", 0, found.start()) + 1, found[1].replace("\\|", "|")

    def links(self) -> Iterator[tuple[int, str]]:
        prose = self.prose
        for found in LINK.finditer(prose):
            yield prose.count("\n", 0, found.start()) + 1, found[1]

    def anchors(self) -> set[str]:
        """As the hosts of repositories make them of headings."""
        return {
            re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
            for heading in HEADING.findall(self.prose)
        }

    def tables(self) -> Iterator[list[tuple[int, list[str]]]]:
        """Each table as rows of cells, its head first and the line under it left out."""
        rows: list[tuple[int, list[str]]] = []
        for number, line in enumerate([*self.prose.splitlines(), ""], start=1):
            found = ROW.match(line)
            if found:
                cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", found[1])]
                if not all(set(cell) <= set("-: ") for cell in cells):
                    rows.append((number, cells))
            elif rows:
                yield rows
                rows = []

    def line_at(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1
