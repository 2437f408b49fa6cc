"""The chart with names that select the broker (SNI): one port per rack, in Services and policies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.test_helm import FULL, settings_of, workloads
from tests.support.rendered import CHART, KUBERNETES, check_schema, needs_helm, of_kind, rendered

pytestmark = needs_helm
SNI = (
    "racks[0].advertisedHost=bootstrap.a.kafka.example.com",
    "racks[0].sniBrokerHost=broker-{node_id}.a.kafka.example.com",
    "racks[1].advertisedHost=bootstrap.b.kafka.example.com",
    "racks[1].sniBrokerHost=broker-{node_id}.b.kafka.example.com",
)


def test_one_port_serves_all_brokers_whose_names_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = rendered(FULL, *SNI)
    domains = set()
    for workload in workloads(objects):
        tls, internal = settings_of(objects, workload, tmp_path, monkeypatch).all_listeners
        assert not internal.by_name
        assert tls.host_of(7) == tls.client_host.replace("bootstrap", "broker-7")
        domains.add(tls.client_host)
        (outside,) = [
            one["spec"]
            for one in of_kind(objects, "Service")
            if one["metadata"]["name"] == f"{workload['metadata']['name']}-outside"
        ]
        assert [(port["name"], port["port"]) for port in outside["ports"]] == [("bootstrap", tls.bootstrap_port)]
    assert domains == {"bootstrap.a.kafka.example.com", "bootstrap.b.kafka.example.com"}
    policy = of_kind(objects, "NetworkPolicy")[0]
    assert 19_200 not in {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    for one in objects:
        check_schema(one, KUBERNETES[-1])


def test_the_values_in_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (CHART.parents[2] / "docs" / "sni.md").read_text()
    (block,) = re.findall(r"```yaml\n# values.yaml\n(.*?)```", page, re.DOTALL)
    values = tmp_path / "values.yaml"
    values.write_text(block)
    objects = rendered(values)
    (workload,) = workloads(objects)
    listeners = settings_of(objects, workload, tmp_path, monkeypatch).listeners
    assert (listeners.by_name, listeners.host_of(3)) == (True, "broker-3.us-east-1a.kafka.example.com")
    assert listeners.tls is not None
    (service,) = [one for one in of_kind(objects, "Service") if one["spec"].get("type") == "LoadBalancer"]
    assert [port["port"] for port in service["spec"]["ports"]] == [9092]
    assert service["metadata"]["annotations"]
    for one in objects:
        check_schema(one, KUBERNETES[-1])
