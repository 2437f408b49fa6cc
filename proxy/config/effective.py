"""The settings that a proxy would run with: the value of each setting, and the source of the value."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import BaseModel, SecretStr

from proxy.config.hidden import HIDDEN
from proxy.config.live import MISSING, value_of
from proxy.config.load import load_settings, read_file, variable_of
from proxy.config.reference import Setting, all_settings
from proxy.config.values import masked

Source = Literal["default", "file", "environment"]


class Effective(NamedTuple):
    """One setting of a proxy."""

    setting: Setting
    value: Any
    """The value as plain types, with secrets hidden; None for a section that is missing."""
    source: Source
    variable: str | None
    """The environment variable that sets it."""
    changed: bool
    """True if the value differs from the default."""


def effective(path: Path) -> list[Effective]:
    """Return the settings that result from the file and the environment, in the order of the reference.

    Raises ConfigError.
    """
    settings, data = load_settings(path), read_file(path)
    found = []
    for setting in all_settings():
        value = value_of(settings, setting)
        if value is MISSING or (setting.is_section and value):
            continue  # what stands in the section follows
        variable = variable_of(setting.path)
        source: Source = "environment" if variable else "file" if _is_in(data, setting.path) else "default"
        shown = None if setting.is_section else _plain(value, secret=setting.secret)
        changed = not setting.is_section and (setting.required or value != setting.default)
        found.append(Effective(setting, shown, source, variable, changed))
    return found


def as_yaml(found: list[Effective]) -> str:
    """Return a settings file with all values, each line with the source of its value."""
    lines, before = ["# Secrets are shown as ***: put them back where this is to be used."], tuple[str, ...]()
    for one in found:
        path = (one.setting.name,) if len(one.setting.path) == 1 else one.setting.path
        for depth, name in enumerate(path[:-1]):
            if before[: depth + 1] != path[: depth + 1]:
                lines.append(f"{'  ' * depth}{name}:")
        before = path[:-1]
        value = yaml.safe_dump([one.value], default_flow_style=True, width=2**20, sort_keys=False).strip()[1:-1]
        lines.append(f"{'  ' * (len(path) - 1)}{path[-1]}: {value}  # {one.variable or one.source}")
    return "\n".join(lines)


def _is_in(data: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(data, dict) or name not in data:
            return False
        data = data[name]
    return True


def _plain(value: Any, *, secret: bool = False) -> Any:
    if isinstance(value, BaseModel):
        secrets = {one.path[-1] for one in all_settings() if one.secret}
        return {name: _plain(getattr(value, name), secret=name in secrets) for name in type(value).model_fields}
    if secret or isinstance(value, SecretStr):
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        return HIDDEN if text else ""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (str, Path)):
        return masked(str(value))
    return value
