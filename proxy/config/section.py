"""The base class and common types of all sections of the settings."""

from __future__ import annotations

import ast
import re
from functools import cache
from inspect import getsource
from itertools import pairwise
from textwrap import dedent
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.fields import FieldInfo

_Value = TypeVar("_Value")


class _ReloadMark:
    """Mark in the annotation of a setting that may change while the proxy runs."""

    def __repr__(self) -> str:
        return "reloadable"


Reloadable = Annotated[_Value, _ReloadMark()]
"""The type of a setting that a reload (SIGHUP) changes; every other one needs a restart. A part that
keeps such a value itself must be updated by `proxy/server/reload.py`; see docs/decisions/0048-reload-in-place.md."""


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _split(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_list, json_schema_input_type=str | tuple[str, ...])]
"""A list of texts; a single text is a list of one."""
Addresses = Annotated[tuple[str, ...], BeforeValidator(_split, json_schema_input_type=str | tuple[str, ...])]
"""A list of addresses, or one text with commas between them, as clients write `bootstrap.servers`."""


def is_reloadable(field: FieldInfo) -> bool:
    """True if a reload changes the setting."""
    return any(isinstance(mark, _ReloadMark) for mark in field.metadata)


class Section(BaseModel):
    """A section of the settings: frozen except for reloads, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@cache
def texts_of(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of a section's settings by name, each on one line; empty for a setting without one.

    They are read from the source when somebody wants to see them. Pydantic would read them at every start, which costs
    a tenth of it.
    """
    (definition,) = ast.parse(dedent(getsource(model))).body
    texts = dict.fromkeys(model.model_fields, "")
    for field, text in pairwise(definition.body if isinstance(definition, ast.ClassDef) else ()):
        match field, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(written))) if name in texts:
                texts[name] = " ".join(written.split())
    return texts


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a setting that is a section, also if the section may be missing; None for a value."""
    for one in get_args(annotation) if get_origin(annotation) is UnionType else (annotation,):
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one
    return None


def checked_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns. Raises ValueError with the first that is not a regular expression."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}; {_remedy(pattern)}") from error
    return patterns


def _remedy(pattern: str) -> str:
    """Return a correction. A shell takes `*` alone for any name, but a regular expression does not."""
    meant = re.sub(r"(?<![.)\]\\])\*", ".*", pattern)
    try:
        re.compile(meant)
    except re.error:
        return "fix it"
    return f"write {meant!r}"
