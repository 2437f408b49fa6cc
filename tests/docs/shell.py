"""Split the commands of shell blocks, and compare them with the command line and the Makefile."""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import Any

import typer

from proxy import cli
from tests.docs.blocks import ROOT

SEPARATORS = {"|", "||", "&&", ";", "&"}
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
SYNOPSIS = re.compile(r"\b([A-Z]+)(?:\|[A-Z]+)+\b")
SUBSTITUTION = re.compile(r"\$\((?:[^()']|'[^']*')*\)")
PREFIXES = ("sudo", "exec", "time", "nohup", "env")


def simple_commands(line: str) -> list[list[str]]:
    """Return the words of each command of a line, without leading assignments and trailing redirections.

    A synopsis is read in its longest form: `[--quick]` is given, and of `FILE|URL` the first is used.
    """
    line = SUBSTITUTION.sub("substituted", line)
    line = SYNOPSIS.sub(r"\1", line)
    line = re.sub(r"(?<=\s)\[([^\]]*)\]", r"\1", line).replace("…", "")
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    lexer.commenters = ""
    found: list[list[str]] = [[]]
    redirected = False
    for word in lexer:
        if word in SEPARATORS:
            found.append([])
        elif set(word) <= set("<>&") and word:
            redirected = True
        elif redirected:
            redirected = False
        elif found[-1] or not (ASSIGNMENT.fullmatch(word) or word in PREFIXES):
            found[-1].append(word)
    return [words for words in found if words]


@cache
def _program() -> Any:
    cli.add_commands()
    return typer.main.get_command(cli.app)


def parse_own(words: list[str]) -> None:
    """Check that every command, option and argument of `diskless-proxy …` exists. Raises AssertionError."""
    group, arguments = _program(), words[1:]
    context = group.make_context("diskless-proxy", arguments)
    try:
        while hasattr(group, "resolve_command"):
            rest = [*getattr(context, "_protected_args", ()), *context.args]
            if not rest:
                assert group.invoke_without_command, f"{shlex.join(words)}: a command is missing"
                return
            name, group, arguments = group.resolve_command(context, rest)
            context = group.make_context(name, list(arguments), parent=context)
    except Exception as error:
        if type(error).__name__ in ("Exit", "Abort"):
            return  # --help and similar options
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        raise AssertionError(f"{shlex.join(words)}: {message}") from error


def targets() -> set[str]:
    """Return the targets of the Makefile."""
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def parse_make(words: list[str]) -> None:
    """Check that the target of `make …` exists, and that the demo knows the options in `ARGS`. Raises
    AssertionError."""
    given = dict(word.split("=", 1) for word in words[1:] if ASSIGNMENT.fullmatch(word))
    named = [word for word in words[1:] if not ASSIGNMENT.fullmatch(word)]
    assert set(named) <= targets(), f"{shlex.join(words)}: make knows {', '.join(sorted(targets()))}"
    for target, command in (("demo", ["demo"]), ("hello", ["demo", "hello"])):
        if target in named:
            parse_own(["diskless-proxy", *command, *shlex.split(given.get("ARGS", ""))])
