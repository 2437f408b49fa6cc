"""What all sections of the settings have in common."""

from __future__ import annotations

import re
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.fields import FieldInfo

_Value = TypeVar("_Value")


class _ReloadMark:
    """Stands in the annotation of a setting that may change while the proxy runs."""

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
"""A list of texts; one text alone is a list of one."""
Addresses = Annotated[tuple[str, ...], BeforeValidator(_split, json_schema_input_type=str | tuple[str, ...])]
"""A list of addresses; or one text with commas between them, as clients write `bootstrap.servers`."""


def is_reloadable(field: FieldInfo) -> bool:
    """Whether a reload changes it."""
    return any(isinstance(mark, _ReloadMark) for mark in field.metadata)


class Section(BaseModel):
    """Fixed once it is read, but for what a reload writes; what it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The model of a setting that is a section, also where it may be missing; None where it is a value."""
    for one in get_args(annotation) if get_origin(annotation) is UnionType else (annotation,):
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one
    return None


def checked_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The same. Raises ValueError naming the first that is no regular expression."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}; {_remedy(pattern)}") from error
    return patterns


def _remedy(pattern: str) -> str:
    """Return what to write instead; `*` alone says any name to a shell, and nothing to a regular expression."""
    meant = re.sub(r"(?<![.)\]\\])\*", ".*", pattern)
    try:
        re.compile(meant)
    except re.error:
        return "fix it"
    return f"write {meant!r}"
