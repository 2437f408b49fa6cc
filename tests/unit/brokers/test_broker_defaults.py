"""The brokers' default retention, read over a connection to any broker."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.brokers.broker_defaults import DefaultsRefused, retention_defaults
from proxy.brokers.cluster import ClusterView
from proxy.brokers.upstream import BrokerUnreachable
from proxy.wire.cold import encode, milliseconds, nested, read_request
from proxy.wire.metadata import Broker

INVALID_REQUEST, CLUSTER_AUTHORIZATION_FAILED = 42, 31


class Service:
    """A broker that answers DescribeConfigs for itself, and INVALID_REQUEST for another broker."""

    def __init__(self, node_id: int, own_error: int = 0) -> None:
        self.node_id = node_id
        self.own_error = own_error

    async def ask(self, api_key: int, api_version: int, body: bytes) -> bytes:
        from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
        from kio.schema.errors import ErrorCode

        request: Any = read_request(api_key, api_version, body)
        result_type = nested(DescribeConfigsResponse, "results")
        config_type = nested(result_type, "configs")
        hours = config_type(
            name="log.retention.hours",
            value="-1",
            read_only=False,
            config_source=4,
            is_sensitive=False,
            synonyms=(),
            config_type=3,
            documentation=None,
        )
        results = []
        for one in request.resources:
            error_code = self.own_error if one.resource_name == str(self.node_id) else INVALID_REQUEST
            configs = () if error_code else (hours,)
            results.append(
                result_type(
                    error_code=ErrorCode(error_code),
                    error_message=None,
                    resource_type=one.resource_type,
                    resource_name=one.resource_name,
                    configs=configs,
                )
            )
        return encode(DescribeConfigsResponse(throttle_time=milliseconds(0), results=tuple(results)))


class Brokers:
    """The brokers' answers for the cluster."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.view = ClusterView({node: Broker(node, "localhost", 9092, None) for node in (1, 2, 3)})


@pytest.mark.parametrize("node_id", [1, 2, 3])
async def test_any_broker_may_answer(node_id: int) -> None:
    brokers: Any = Brokers(Service(node_id))
    assert await retention_defaults(brokers) == (-1, -1, "delete")


async def test_a_broker_that_is_not_in_the_view_has_refused_nothing() -> None:
    """The controller may have fenced the contacted broker itself: then the others' answers are INVALID_REQUEST."""
    brokers: Any = Brokers(Service(9))
    with pytest.raises(BrokerUnreachable, match="invalid_request"):
        await retention_defaults(brokers)


async def test_a_broker_without_the_right_to_answer() -> None:
    brokers: Any = Brokers(Service(2, CLUSTER_AUTHORIZATION_FAILED))
    with pytest.raises(DefaultsRefused, match="cluster_authorization_failed"):
        await retention_defaults(brokers)
