"""The settings in the pages, with a stack's addresses and racks in place of the examples'."""

from __future__ import annotations

import re
from pathlib import Path

from proxy.demo.stack import Stack
from tests.docs.blocks import ROOT, Block, all_blocks

RACKS = {"us-east-1a": "rack-a", "us-east-1b": "rack-b", "us-east-1c": "rack-c"}
"""Racks of the pages, with those of the stack."""


def block(page: str, language: str, first: str = "") -> Block:
    """Return the block of a page whose first line begins with `first`, or the first one in that language by default."""
    found = [
        one
        for one in all_blocks()
        if one.page == page and one.language == language and one.text.lstrip().startswith(first)
    ]
    assert found, f"{page} has no {language} block that begins with {first!r}"
    return found[0]


def recipe(stack: Stack, page: str, first: str = "", **others: str) -> dict[str, str]:
    """Return a `properties` block by name; `others` (dots as `_`) override it.

    The stack's hosts differ from the page's, so every host becomes the proxy of the rack in its name.
    """
    lines = block(page, "properties", first).text.splitlines()
    pairs = (line.partition("=")[::2] for line in lines if "=" in line and not line.startswith("#"))
    settings = {name.strip(): for_stack(stack, value.strip()) for name, value in pairs}
    return settings | {name.replace("_", "."): value for name, value in others.items()}


def for_stack(stack: Stack, text: str) -> str:
    """Return a text of the pages with the stack's addresses and racks."""
    text = re.sub(r"kafka-([\w-]+)\.example\.com:9092", lambda host: stack.bootstrap(RACKS[host[1]]), text)
    for shown, real in RACKS.items():
        text = text.replace(shown, real)
    return text


def written(file: Path, settings: dict[str, str]) -> str:
    """Write settings into a properties file and return its path."""
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(file)


def java_source(name: str) -> Path:
    """Return a program of the tests' own."""
    return ROOT / "tests" / "docs" / "programs" / f"{name}.java"
