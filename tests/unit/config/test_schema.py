"""The JSON schema of the settings file accepts what the proxy accepts, and finds what an editor should mark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from proxy.config.reference import all_settings
from proxy.config.schema import definitions, schema

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted([*(ROOT / "deploy" / "config").glob("*.yaml"), *(ROOT / "deploy" / "compose" / "proxies").glob("*")])


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(schema())
    return Draft202012Validator(schema())


def complaints(validator: Draft202012Validator, settings: Any) -> list[str]:
    return [error.message for error in validator.iter_errors(settings)]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_valid(validator: Draft202012Validator, path: Path) -> None:
    assert complaints(validator, yaml.safe_load(path.read_text())) == []


@pytest.mark.parametrize(
    "text",
    [
        "redis: {ulr: redis://x}",
        "colour: red",
        "workers: 0",
        "listeners: {bootstrap_port: many}",
        "leader_choice: any",
        "additional_listeners: [{nmae: tls}]",
        "brokers: {tls: {ca: x}}",
    ],
)
def test_mistakes_are_found(validator: Draft202012Validator, text: str) -> None:
    assert complaints(validator, yaml.safe_load(text))


def test_names_of_kafka_may_be_written_with_dots_and_without(validator: Draft202012Validator) -> None:
    for name in ("diskless.append.commit.interval.ms", "diskless_append_commit_interval_ms"):
        assert complaints(validator, {name: 250}) == []
        assert complaints(validator, {name: "soon"})


def test_every_setting_is_in_it() -> None:
    parts = definitions()
    for setting in all_settings():
        here = parts["Settings"]
        for field in setting.path:
            found = here["properties"][field]
            choices = [found, *found.get("anyOf", ())]
            here = next((parts[one["$ref"].rpartition("/")[2]] for one in choices if "$ref" in one), found)
