"""Reading the settings file, and saying what is wrong with it without telling secrets."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_settings import SettingsError

from proxy.config.settings import Settings

_PREFIX: str = Settings.model_config["env_prefix"]
_DELIMITER = Settings.model_config["env_nested_delimiter"] or ""
_SECRETIVE = ("secret", "password", "token", "sasl", "tls")


class ConfigError(Exception):
    """The configuration can't be used; the text names the setting, the cause and the remedy."""


def load_settings(path: Path) -> Settings:
    """Read `path`, put the environment over it, check it. Raises ConfigError with one line per finding."""
    try:
        data = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}; pass an existing file to --config") from error
    except yaml.YAMLError as error:
        # Not the whole text of the error: it quotes lines of the file, which may hold a secret. Nor its cause.
        raise ConfigError(f"{path} is not YAML: {_explain_yaml(error)}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds no settings; see docs/configuration.md for an example")
    try:
        return Settings(**_field_names(data))
    except ValidationError as error:
        raise ConfigError(_explain(path, error)) from None
    except SettingsError as error:
        raise ConfigError(f"the environment: {error}; write sections there as JSON, or setting by setting") from None


def _field_names(data: dict[str, Any]) -> dict[str, Any]:
    """Kafka's dotted setting names as field names."""
    return {str(key).replace(".", "_").replace("-", "_"): value for key, value in data.items()}


def _explain(path: Path, error: ValidationError) -> str:
    in_file, in_environment = list[str](), list[str]()
    for finding in error.errors(include_url=False):
        name = ".".join(str(part) for part in finding["loc"]) or "settings"
        if finding["type"] == "extra_forbidden":
            text = f"{name}: no such setting; see docs/configuration.md for the names"
        elif finding["type"] == "missing":
            text = f"{name}: is missing; add it, see docs/configuration.md for an example"
        elif finding["type"] == "model_type":
            text = f"{name}: has to be a section with settings{_shown(name, finding['input'])}"
        else:
            text = f"{name}: {finding['msg'].removeprefix('Value error, ')}{_shown(name, finding['input'])}"
        variable = _variable_of(finding["loc"])
        if variable is None:
            in_file.append(text)
        else:
            in_environment.append(f"environment variable {variable}: {text}")
    return "; ".join([*([f"{path}: " + "; ".join(in_file)] if in_file else []), *in_environment])


def _variable_of(setting: tuple[str | int, ...]) -> str | None:
    """The environment variable that says what the setting is; None where none does."""
    variables = {name.upper(): name for name in os.environ}
    for end in range(len(setting), 0, -1):
        name = variables.get((_PREFIX + _DELIMITER.join(map(str, setting[:end]))).upper())
        if name is not None and _says(os.environ[name], setting[end:]):
            return name
    return None


def _says(value: str, inner: tuple[str | int, ...]) -> bool:
    """Whether a variable's JSON has something at that place in it."""
    try:
        found: Any = json.loads(value) if inner else None
        for part in inner:
            found = found[part]
    except (ValueError, LookupError, TypeError):
        return False
    return True


def _shown(name: str, value: object) -> str:
    """What was found, where it can be no secret: a section may hold one, as may a URL before its `@`."""
    if not isinstance(value, (str, int, float)) or any(word in name for word in _SECRETIVE):
        return ""
    return f" (it is {re.sub(r'(?<=//)[^/]*@', '***@', value) if isinstance(value, str) else value!r})"


def _explain_yaml(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}; mend it there"
    return f"{type(error).__name__}; write it as YAML in UTF-8"
