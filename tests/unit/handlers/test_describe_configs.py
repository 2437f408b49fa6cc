"""DescribeConfigs of a diskless topic: the registry's configs, while this proxy's copy of them is current."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from proxy.client.request import Request
from proxy.protocol.errors import NONE, REQUEST_TIMED_OUT
from proxy.topics.topic_resources import TOPIC
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds, nested, read_response
from tests.registry_model import ModelTopicRegistry

DESCRIBE_CONFIGS, VERSION = 32, 4
module = import_module("proxy.handlers.describe_configs")
"""The package has a function of that name."""


async def described(monkeypatch: pytest.MonkeyPatch, *, lease_runs: bool) -> dict[str, Any]:
    """Return the results by topic for a diskless topic, whose placeholder has no configs, and for a classic one."""
    registry = ModelTopicRegistry()
    await registry.reserve("mine", 1, {}, "owner")
    await registry.activate("mine", b"m" * 16, 1)
    topics = Topics(registry, lease_runs=lambda: lease_runs)
    await topics.load()
    answered: list[bytes] = []

    async def ask(*_: object) -> memoryview:
        schema: Any = load_response_schema(DESCRIBE_CONFIGS, VERSION)
        result_type = nested(schema, "results")
        results = tuple(
            result_type(
                error_code=ErrorCode(NONE), error_message=None, resource_type=TOPIC, resource_name=name, configs=()
            )
            for name in ("mine", "theirs")
        )
        return memoryview(encode(schema(throttle_time=milliseconds(0), results=results)))

    async def no_defaults(connection: Any) -> dict[str, str]:
        return {}

    monkeypatch.setattr(module, "_defaults", no_defaults)
    request_schema: Any = load_request_schema(DESCRIBE_CONFIGS, VERSION)
    resource_type = nested(request_schema, "resources")
    resources = tuple(
        resource_type(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in ("mine", "theirs")
    )
    body = memoryview(encode(request_schema(resources=resources, include_synonyms=True, include_documentation=False)))
    slot = SimpleNamespace(fill=answered.extend)
    client: Any = SimpleNamespace(context=SimpleNamespace(topics=topics), ask=ask, open_slot=lambda request: slot)
    waiting = module.describe_configs(client, Request(DESCRIBE_CONFIGS, VERSION, 1, "client", body, body))
    assert waiting is not None
    await waiting
    response: Any = read_response(DESCRIBE_CONFIGS, VERSION, memoryview(b"".join(answered)))
    return {str(result.resource_name): result for result in response.results}


async def test_the_registrys_configs_are_returned_while_the_lease_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    results = await described(monkeypatch, lease_runs=True)
    assert [config.name for config in results["mine"].configs] == ["diskless.enable"]
    assert {result.error_code.value for result in results.values()} == {NONE}


async def test_outdated_configs_are_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    results = await described(monkeypatch, lease_runs=False)
    assert (results["mine"].error_code.value, results["mine"].configs) == (REQUEST_TIMED_OUT, ())
    assert "coordinator" in results["mine"].error_message
    assert results["theirs"].error_code.value == NONE
