"""The JSON schema of the settings file, for editors and for the chart's values."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from proxy.config.reference import all_settings
from proxy.config.section import Section, texts_of
from proxy.config.settings import Settings

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ROOT = "Settings"
"""Name of the whole file among the definitions of `definitions()`."""


def schema() -> dict[str, Any]:
    """Return the schema of a settings file. Nothing is required: an environment variable may set what a file lacks."""
    inner = definitions()
    return {"$schema": DIALECT, "title": "Settings of diskless-proxy", **inner.pop(ROOT), "$defs": inner}


def definitions() -> dict[str, Any]:
    """Return the schema in parts that refer to each other as `#/$defs/NAME`; the whole file is `Settings`."""
    whole = Settings.model_json_schema()
    parts = {**whole.pop("$defs"), ROOT: whole}
    models: list[type[BaseModel]] = [Settings, *Section.__subclasses__()]
    texts = {model.__name__: texts_of(model) for model in models}
    for part_name, part in parts.items():
        part.pop("required", None)
        part.pop("title", None)
        for name, value in part.get("properties", {}).items():
            part["properties"][name] = _plain(value, texts[part_name][name])
    properties = parts[ROOT]["properties"]
    for setting in all_settings():
        field = setting.path[0]
        if len(setting.path) == 1 and setting.name != field:  # Kafka's name, with dots
            properties[setting.name] = properties[field]
    return dict(sorted(parts.items()))


def _plain(value: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a property with its text, without the title that repeats its name and the defaults of a whole section."""
    described = {"description": text} if text else {}
    kept = {name: inner for name, inner in sorted((value | described).items()) if name != "title"}
    if "$ref" in kept:
        kept.pop("default", None)
    return kept
