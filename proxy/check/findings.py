"""Findings of a check, and their output: one line each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """A start works, but something may not behave as expected."""
    ERROR = "error"
    """A start fails or waits, or clients get something unusable."""
    SKIPPED = "skipped"
    """It could not be checked, for a reason that another finding names."""


class Kind(StrEnum):
    """The concerns, in the order in which they are reported."""

    SETTINGS = "settings"
    FILES = "certificates"
    PORTS = "ports"
    ADDRESSES = "advertised addresses"
    LIMITS = "limits"
    BROKERS = "brokers"
    RIGHTS = "rights at the brokers"
    RACKS = "racks"
    STORE = "Redis"
    STORAGE = "object storage"
    JOURNAL = "journal"
    CLOCK = "clock"
    FLEET = "fleet"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    level: Level
    kind: Kind
    where: str
    """Setting that is concerned, with the address or file that it names if that helps."""
    text: str
    """State that was found; for a failure, the cause."""
    remedy: str = ""
    """Action to take; empty if none is needed."""

    @property
    def line(self) -> str:
        """Return the whole finding in one line."""
        text = f"{self.where}: {self.text}" if self.where else self.text
        return " ".join(f"{text}; {self.remedy}".split() if self.remedy else text.split())


def ok(kind: Kind, where: str, text: str) -> Finding:
    """Return a finding of level OK."""
    return Finding(Level.OK, kind, where, text)


def warning(kind: Kind, where: str, text: str, remedy: str) -> Finding:
    """Return a finding of level WARNING."""
    return Finding(Level.WARNING, kind, where, text, remedy)


def error(kind: Kind, where: str, text: str, remedy: str) -> Finding:
    """Return a finding of level ERROR."""
    return Finding(Level.ERROR, kind, where, text, remedy)


def skipped(kind: Kind, text: str) -> Finding:
    """Return a finding of level SKIPPED."""
    return Finding(Level.SKIPPED, kind, "", text)


def from_error(
    kind: Kind, where: str, problem: Exception | str, remedy: str = "", *, level: Level = Level.ERROR
) -> Finding:
    """Return the finding for an error of the start: one line, the cause first, the remedy after the first semicolon.

    `remedy` is used if the line has none. A setting that the line begins with is not repeated.
    """
    line = str(problem)
    if where and line.startswith(where):
        line = line[len(where) :].lstrip(": ")
    cause, _, named = line.partition("; ")
    return Finding(level, kind, where, cause, named or remedy)


def exit_code(findings: Iterable[Finding], *, strict: bool = False) -> int:
    """Return 1 if anything has to be fixed; with `strict` also if there is a warning."""
    failing = {Level.ERROR, Level.WARNING} if strict else {Level.ERROR}
    return int(any(finding.level in failing for finding in findings))
