"""The fenced blocks, links and anchors of the Markdown pages."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)(`{3,}|~{3,})\s*([\w-]*)")
INLINE_CODE = re.compile(r"(`+)(?:(?!\1).)+?\1")
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
HTML_ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")
DRAWN = set("│─┌┐└┘├┤┬┴┼")


@dataclass(frozen=True, slots=True)
class Block:
    """The text between two fences."""

    page: str
    """Path from the root, with slashes."""
    line: int
    """Line of the opening fence, from 1."""
    language: str
    text: str

    @property
    def first(self) -> str:
        """Return the first line that is not empty, which identifies the block in the table."""
        return next((line.strip() for line in self.text.splitlines() if line.strip()), "")

    @property
    def is_drawing(self) -> bool:
        return bool(DRAWN & set(self.text))

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return the pages that users and contributors read."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/helm/*/README.md")])


def read(page: Path) -> tuple[str, list[Block]]:
    """Return the text outside of fences, with empty lines in their place, and the blocks."""
    outside: list[str] = []
    blocks: list[Block] = []
    inside: list[str] | None = None
    opened = (0, "", "")
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if inside is None and fence:
            inside, opened = [], (number, fence[2], fence[3])
        elif inside is not None and line.strip() == opened[1]:
            text = textwrap.dedent("\n".join(inside)) + "\n"
            blocks.append(Block(page.relative_to(ROOT).as_posix(), opened[0], opened[2], text))
            inside = None
        elif inside is not None:
            inside.append(line)
            outside.append("")
            continue
        outside.append("" if fence else line)
    assert inside is None, f"{page}:{opened[0]}: the block does not end"
    return "\n".join(outside), blocks


@cache
def all_blocks() -> tuple[Block, ...]:
    return tuple(block for page in pages() for block in read(page)[1])


def links(page: Path) -> Iterator[str]:
    """Return the targets of the page's links, outside of code."""
    text = INLINE_CODE.sub("", read(page)[0])
    yield from LINK.findall(text)


def mentioned(page: Path) -> Iterator[str]:
    """Return our own commands in the running text."""
    for command in re.findall(r"`((?:make|diskless-proxy) [a-z][^`]*)`", read(page)[0]):
        yield command.replace("\n", " ")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the valid targets of `#…`, as GitHub and the built site name headings."""
    found: set[str] = set()
    text = read(page)[0]
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", text, re.MULTILINE):
        base = anchor(heading)
        name, number = base, 0
        while name in found:
            number += 1
            name = f"{base}-{number}"
        found.add(name)
    return frozenset(found | set(HTML_ANCHOR.findall(text)))


def anchor(heading: str) -> str:
    """Return a heading's anchor: lower case, without marks, with dashes for blanks."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def commands(block: Block) -> list[str]:
    """Return the commands of a shell block, without comments, prompts and heredocs; continued lines are joined."""
    lines: list[str] = []
    heredoc = ""
    for line in block.text.splitlines():
        if heredoc:
            heredoc = "" if line.strip() == heredoc else heredoc
            continue
        if lines and lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1] + line.strip()
        else:
            lines.append(line.strip())
        if found := re.search(r"<<-?\s*['\"]?(\w+)['\"]?", line):
            heredoc = found[1]
    bare = (re.sub(r"(^|\s)#(\s.*|$)", "", line).strip().removeprefix("$ ") for line in lines)
    return [line for line in bare if line]
