"""DescribeConfigs of a diskless topic: the registry's configs, while this proxy's copy of them is current."""

from __future__ import annotations

from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from proxy.brokers.upstream import BrokerUnreachable
from proxy.handlers.describe_configs import DescribeConfigs
from proxy.process.turns import Turns
from proxy.protocol.errors import NONE, REQUEST_TIMED_OUT
from proxy.topics.topic_resources import TOPIC
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds, nested, read_response
from tests.registry_model import ModelTopicRegistry
from tests.unit.brokers_double import Brokers
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.parts import settings_of

DESCRIBE_CONFIGS, VERSION = 32, 4


async def described(*, lease_runs: bool, configs: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the results by topic for a diskless topic, whose placeholder has no configs, and for a classic one."""
    registry = ModelTopicRegistry()
    await registry.reserve("mine", 1, configs or {}, "owner")
    await registry.activate("mine", b"m" * 16, 1)
    topics = Topics(registry, lease_runs=lambda: lease_runs)
    await topics.load()

    def broker(*_: object) -> Any:
        schema: Any = load_response_schema(DESCRIBE_CONFIGS, VERSION)
        result_type = nested(schema, "results")
        results = tuple(
            result_type(
                error_code=ErrorCode(NONE), error_message=None, resource_type=TOPIC, resource_name=name, configs=()
            )
            for name in ("mine", "theirs")
        )
        return schema(throttle_time=milliseconds(0), results=results)

    async def unreachable(*_: object) -> memoryview:
        raise BrokerUnreachable("away")

    cluster: Any = Brokers({})
    cluster.ask = unreachable
    handler = DescribeConfigs(settings_of(), topics=topics, cluster=cluster, turns=Turns(0.0))
    request_schema: Any = load_request_schema(DESCRIBE_CONFIGS, VERSION)
    resource_type = nested(request_schema, "resources")
    resources = tuple(
        resource_type(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in ("mine", "theirs")
    )
    body = encode(request_schema(resources=resources, include_synonyms=True, include_documentation=False))
    request = request_of(DESCRIBE_CONFIGS, VERSION, body)
    answer = await ClientDouble(broker).answer(handler.describe_configs, request)
    assert answer is not None
    response: Any = read_response(DESCRIBE_CONFIGS, VERSION, memoryview(answer))
    return {str(result.resource_name): result for result in response.results}


async def test_the_registrys_configs_are_returned_while_the_lease_runs() -> None:
    results = await described(lease_runs=True)
    assert [config.name for config in results["mine"].configs] == ["diskless.enable"]
    assert {result.error_code.value for result in results.values()} == {NONE}


async def test_the_latency_of_appends_is_described_if_it_is_set() -> None:
    results = await described(lease_runs=True, configs={"diskless.append.latency.ms": " 2000 "})
    enabled, latency = results["mine"].configs
    assert (enabled.name, enabled.value, enabled.read_only) == ("diskless.enable", "true", True)
    assert (latency.name, latency.value, latency.read_only) == ("diskless.append.latency.ms", "2000", False)
    assert results["theirs"].configs == ()


async def test_outdated_configs_are_not_returned() -> None:
    results = await described(lease_runs=False)
    assert (results["mine"].error_code.value, results["mine"].configs) == (REQUEST_TIMED_OUT, ())
    assert "coordinator" in results["mine"].error_message
    assert results["theirs"].error_code.value == NONE
