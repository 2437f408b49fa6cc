"""Reference of all settings of the model, with type, unit, default, range and place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from inspect import cleandoc
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeAlias, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from proxy.config.section import is_reloadable, section_of, texts_of
from proxy.config.settings import Settings
from proxy.config.units import COUNT, human, unit_of

PREFIX: str = Settings.model_config["env_prefix"]
DELIMITER = Settings.model_config["env_nested_delimiter"] or ""

_NEAR_NAMES_MAX = 3
_KAFKA_NAMES = (
    "diskless_system_",
    "diskless_storage_",
    "diskless_append_",
    "enable_under_replicated_topic_creation",
    "log_retention_check_interval_ms",
    "producer_id_expiration_",
    "sasl_oauthbearer_sub_claim_name",
)
"""Settings that have a name of Kafka's, or of a KIP. They are shown with dots, as Kafka shows them."""
_SECRET_NAMES = frozenset({"secret_access_key"})
_TYPES = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    SecretStr: "secret text",
    Path: "path",
}

_Model: TypeAlias = type[BaseModel]  # in the body of Setting, `type` is a field


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """One setting, or a section that may be missing (`is_section`)."""

    path: tuple[str, ...]
    """The fields, starting at the root of the model."""
    name: str
    """Name as the file may write it: dotted, or as Kafka names it."""
    type: str
    unit: str
    """Unit of a number; empty for other types."""
    default: Any
    """The default; `PydanticUndefined` if the setting is required."""
    range: str
    """Range of allowed values, in words; empty if every value is allowed."""
    reloadable: bool
    secret: bool
    model: _Model
    """The section, or the whole settings, of which it is a field."""
    is_section: bool = False

    @property
    def text(self) -> str:
        """Return the setting's docstring on one line."""
        return texts_of(self.model)[self.path[-1]]

    @property
    def variable(self) -> str:
        """Return the environment variable."""
        return PREFIX + DELIMITER.join(self.path).upper()

    @property
    def required(self) -> bool:
        """True if the setting has no default."""
        return self.default is PydanticUndefined

    @property
    def section(self) -> str:
        """Return the section that contains the setting; empty at the top of the file."""
        return ".".join(self.path[:-1])

    @property
    def default_text(self) -> str:
        """Return the default in a readable form."""
        if self.required:
            return "required"
        if self.default is None:
            return "missing"
        if isinstance(self.default, SecretStr) or self.default in ("", (), {}):
            return "empty"
        shown = written(self.default)
        eased = human(self.default, self.unit) if self.unit else ""
        return f"{shown} ({eased})" if eased else shown


@lru_cache(maxsize=1)
def all_settings() -> tuple[Setting, ...]:
    """Return all settings in the order of the model."""
    return tuple(_walk(Settings, ()))


def sections() -> dict[str, str]:
    """Return the text of every section by its name, in the order of the model. The top of the file is not included."""
    return dict(_sections(Settings, ""))


def named(name: str) -> tuple[Setting, ...]:
    """Return the settings that a name stands for: one setting, those of a section, or those whose name begins with it,
    in the order of the model.

    `name` is dotted, as Kafka writes it, or an environment variable. Case and separators don't matter.
    """
    wanted = _key(name)
    exact = tuple(one for one in all_settings() if _key(one.name) == wanted or _key(one.variable) == wanted)
    if exact and not exact[0].is_section:
        return exact
    return tuple(one for one in all_settings() if wanted and _key(one.name).startswith(wanted))


def near_names(name: str) -> tuple[str, ...]:
    """Return names of settings and sections that a misspelled name may have meant, the nearest first."""
    known = {_key(one.name): one.name for one in all_settings()} | {_key(one): one for one in sections()}
    wanted = _key(name)
    found = get_close_matches(wanted, known, n=_NEAR_NAMES_MAX, cutoff=0.75)
    # The last part of the name may be right, with another section or none before it.
    last = _key(name.rpartition(".")[2])
    found += [key for key in known if key.endswith(f"_{last}") or key == last]
    found += get_close_matches(wanted, known, n=_NEAR_NAMES_MAX, cutoff=0.6)
    return tuple(known[key] for key in dict.fromkeys(found))[:_NEAR_NAMES_MAX]


def written(value: Any) -> str:
    """Return a value as the file writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(written, value)) + "]"
    return str(value)


def _key(name: str) -> str:
    return name.replace(DELIMITER, "_").replace(".", "_").replace("-", "_").lower()


def _sections(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        section = section_of(field.annotation)
        if section is not None:
            yield prefix + name, " ".join(cleandoc(section.__doc__ or "").split())
            yield from _sections(section, f"{prefix}{name}.")


def _walk(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        here = (*path, name)
        section = section_of(field.annotation)
        if section is None:
            yield _setting(model, here, field)
            continue
        if field.default is None:
            yield Setting(here, ".".join(here), "section", "", None, "", False, False, model, is_section=True)
        yield from _walk(section, here)


def _setting(model: type[BaseModel], path: tuple[str, ...], field: FieldInfo) -> Setting:
    name = path[-1]
    annotation = _plain(field.annotation)
    number = annotation in (int, float)
    return Setting(
        path=path,
        name=name.replace("_", ".") if name.startswith(_KAFKA_NAMES) and len(path) == 1 else ".".join(path),
        type=_type_text(annotation),
        unit=unit_of(name) if number else "",
        default=field.get_default(call_default_factory=True, validated_data={}),
        range=_range_text(annotation, field),
        reloadable=is_reloadable(field),
        secret=annotation is SecretStr or name in _SECRET_NAMES,
        model=model,
    )


def _plain(annotation: Any) -> Any:
    """Return the type without None."""
    if get_origin(annotation) is UnionType:
        return next(one for one in get_args(annotation) if one is not type(None))
    return annotation


def _type_text(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "one of"
    if origin is tuple:
        inner = section_of(arguments[0])
        return "list of sections" if inner is not None else f"list of {_TYPES.get(arguments[0], 'value')}s"
    if origin is dict:
        return f"map of {_TYPES[arguments[0]]} to {_TYPES[arguments[1]]}"
    return _TYPES[annotation]


def _range_text(annotation: Any, field: FieldInfo) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{one}`" for one in get_args(annotation))
    limits = {
        name: getattr(mark, name)
        for mark in field.metadata
        for name in ("ge", "gt", "le", "lt", "min_length", "max_length")
        if getattr(mark, name, None) is not None
    }
    if "ge" in limits and "le" in limits:
        return f"{limits['ge']} to {limits['le']}"
    words = {"ge": "at least {}", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}
    parts = [text.format(limits[name]) for name, text in words.items() if name in limits]
    if limits.get("min_length"):
        parts.append("not empty" if limits["min_length"] == 1 else f"at least {limits['min_length']} long")
    if limits.get("max_length"):
        parts.append(f"at most {limits['max_length']} long")
    return ", ".join(parts)


__all__ = ["COUNT", "DELIMITER", "PREFIX", "Setting", "all_settings", "named", "near_names", "sections", "written"]
