"""Read the settings file, and explain errors in it without leaking secrets."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_settings import SettingsError

from proxy.config.hidden import HIDDEN, hidden_in
from proxy.config.reference import DELIMITER, PREFIX, near_names
from proxy.config.settings import Settings
from proxy.config.values import masked
from proxy.config.yaml_file import read_yaml

_OF_NUMBERS = frozenset(
    {
        *("int_type", "int_parsing", "int_parsing_size", "int_from_float", "float_type", "float_parsing"),
        *("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number"),
    }
)
"""Types of pydantic's errors about numbers."""
_SECRETIVE = ("secret", "password", "token", "sasl", "tls")
"""Words in the name of a setting whose value is never shown, not even if it should have been a section."""
"""Words in the name of a setting whose value is never shown, not even if it should have been a section."""


class ConfigError(Exception):
    """The configuration can't be used; the text names the setting, the cause and the remedy."""

    def __init__(self, text: str, findings: tuple[str, ...] = ()) -> None:
        """Take the parts of the text as `findings` if there are several findings."""
        super().__init__(text)
        self.findings = findings or (text,)


def load_settings(path: Path) -> Settings:
    """Read `path`, apply the environment over it, and check the result.

    Raises ConfigError with one line per finding.
    """
    data, as_written = _read(path)
    try:
        # A copy: sections that the file does not name are the model's own defaults, and a reload must not write to
        # those.
        settings = Settings(**data).model_copy(deep=True)
    except ValidationError as error:
        raise _explained(path, error, as_written) from None
    except SettingsError as error:
        raise ConfigError(
            f"the environment: {_cut_off(error)} is not JSON; write a section as JSON, or use one variable for "
            f"each setting"
        ) from None
    if hidden := sorted(".".join(map(str, place)) for place in hidden_in(settings)):
        why = f"has {HIDDEN} instead of a secret, as config show prints it; write the secret there"
        findings = tuple(f"{name}: {why}" for name in hidden)
        raise ConfigError(f"{path}: {'; '.join(findings)}", findings)
    return settings


def read_file(path: Path) -> dict[str, Any]:
    """Return the content of the file, unchecked, with its top level by the names of fields. Raises ConfigError."""
    return _read(path)[0]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what `read_file` returns, and the names of the top level as the file writes them."""
    try:
        data = read_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"can't read {path}: {error.strerror}; name an existing file with --config or DISKLESS_PROXY_CONFIG"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8, from byte {error.start} on; save it as UTF-8") from None
    except yaml.YAMLError as error:
        # Leave out the whole text of the error and its cause: they quote lines of the file, which may hold a secret.
        raise ConfigError(f"{path} is not YAML: {_explain_yaml(error)}") from None
    except Exception:  # any error of the constructors of dates and numbers; their texts quote the file too
        raise ConfigError(
            f"{path} has a value that looks like a date or a number but is not one, or is nested too deep; write "
            "it in quotes"
        ) from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} contains no settings; see docs/configuration.md for an example")
    # Keys are Kafka's dotted setting names or field names; both become field names.
    settings, as_written = dict[str, Any](), dict[str, str]()
    for key, value in data.items():
        name = str(key).replace(".", "_").replace("-", "_")
        if name in settings:
            finding = f"{key}: is also there as {as_written[name]}; remove one of the two"
            raise ConfigError(f"{path}: {finding}", (finding,))
        settings[name], as_written[name] = value, str(key)
    return settings, as_written


def _cut_off(error: SettingsError) -> str:
    """Return the variable, or variables, that can't be read; pydantic names only the field."""
    found = re.search(r'field "(\w+)"', str(error))
    whole = (PREFIX + (found[1] if found else "")).upper()
    variables = [name for name in os.environ if name.upper() == whole or name.upper().startswith(whole + DELIMITER)]
    return ", ".join(name for name in variables if _is_cut_off(os.environ[name], name.upper() == whole)) or whole


def _is_cut_off(value: str, is_section: bool) -> bool:
    """Return True if a value that has to be JSON is not JSON.

    It has to be JSON for a section, or if its first character says so.
    """
    try:
        json.loads(value)
    except ValueError:
        return is_section or value.lstrip().startswith(("{", "["))
    return False


def _explained(path: Path, error: ValidationError, as_written: Mapping[str, str]) -> ConfigError:
    in_file, in_environment = list[str](), list[str]()
    for finding in error.errors(include_url=False):
        place = finding["loc"]
        variable = variable_of(place)
        top, *inner = map(str, place or ("settings",))
        name = ".".join([top if variable else as_written.get(top, top), *inner])
        if finding["type"] == "extra_forbidden":
            text = f"{name}: no such setting; {_hint('.'.join([top, *inner]))}see docs/configuration.md for the names"
        elif finding["type"] == "missing":
            text = f"{name}: is missing; add it, see docs/configuration.md for an example"
        elif finding["type"] == "model_type":
            text = f"{name}: has to be a section with settings{_shown(name, finding['input'])}"
        else:
            text = f"{name}: {_said(finding['msg'], finding['type'])}{_shown(name, finding['input'])}"
            if finding["type"] in _OF_NUMBERS:
                text += "; write a number within its range, without the unit that its name contains"
            elif finding["type"] == "string_type" and isinstance(finding["input"], (int, float, date)):
                text += "; put it in quotes"
        if variable is None:
            in_file.append(text)
        else:
            in_environment.append(f"environment variable {variable}: {text}")
    text = "; ".join([*([f"{path}: " + "; ".join(in_file)] if in_file else []), *in_environment])
    return ConfigError(text, (*in_file, *in_environment))


def _said(message: str, kind: str) -> str:
    """Return pydantic's message without the part about parsing."""
    message = message.removeprefix("Value error, ")
    return message.partition(", unable to parse")[0] if kind in _OF_NUMBERS else message


def _hint(name: str) -> str:
    near = near_names(name)
    return f"did you mean {near[0]}? Else " if near else ""


def variable_of(setting: tuple[str | int, ...]) -> str | None:
    """Return the environment variable that sets a setting; None if no variable does."""
    variables = {name.upper(): name for name in os.environ}
    for end in range(len(setting), 0, -1):
        name = variables.get((PREFIX + DELIMITER.join(map(str, setting[:end]))).upper())
        if name is not None and _says(os.environ[name], setting[end:]):
            return name
    return None


def _says(value: str, inner: tuple[str | int, ...]) -> bool:
    """Return True if a variable's JSON has something at that place in it."""
    try:
        found: Any = json.loads(value) if inner else None
        for part in inner:
            found = found[part]
    except (ValueError, LookupError, TypeError):
        return False
    return True


def _shown(name: str, value: object) -> str:
    """Return the value that was found, unless it may be a secret: a section may hold one, and a URL before its `@`."""
    if not isinstance(value, (str, int, float)) or any(word in name for word in _SECRETIVE):
        return ""
    return f" (it is {masked(value) if isinstance(value, str) else value!r})"


def _explain_yaml(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        # The quoted text may be a password that begins with `*` or `!`.
        problem = re.sub(r"(?s)['\"].*['\"]", "…", error.problem or "it can't be read")
        place = f"line {mark.line + 1}, column {mark.column + 1}"
        if repr("\t") in (error.problem or ""):
            return f"{place} is a tab; indent with spaces"
        return f"{place}: {problem}; fix it there"
    return f"{type(error).__name__}; write it as YAML in UTF-8"
