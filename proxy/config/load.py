"""Reading the settings file, and saying what is wrong with it without telling secrets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_settings import SettingsError

from proxy.config.settings import Settings

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
    findings = []
    for finding in error.errors(include_url=False):
        name = ".".join(str(part) for part in finding["loc"]) or "settings"
        if finding["type"] == "extra_forbidden":
            findings.append(f"{name}: no such setting; see docs/configuration.md for the names")
        elif finding["type"] == "missing":
            findings.append(f"{name}: is missing; add it, see docs/configuration.md for an example")
        else:
            findings.append(f"{name}: {finding['msg'].removeprefix('Value error, ')}{_shown(name, finding['input'])}")
    return f"{path}: " + "; ".join(findings)


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
