"""The chart, with the real helm: lint, every values file, schemas of two Kubernetes versions, the pods' settings."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy import __version__ as VERSION
from proxy.check.findings import Level
from proxy.check.limits import of_memory
from proxy.config import Settings, load_settings
from tests.support.rendered import (
    CHART,
    KUBERNETES,
    VALUES,
    Object,
    check_restricted,
    check_schema,
    check_whole,
    containers,
    helm,
    needs_helm,
    of_kind,
    pods,
    rendered,
)

pytestmark = needs_helm
SMALL, FULL, DAEMON_SET = (CHART / "ci" / f"{name}-values.yaml" for name in ("small", "full", "daemonset"))

SECOND_RANGE = ("name=TLS", "bootstrap_port=9093", "broker_port_start=19400", "broker_node_ids=0-9")

every_values_file = pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)


def workloads(objects: tuple[Object, ...]) -> list[Object]:
    return of_kind(objects, "Deployment") + of_kind(objects, "DaemonSet")


def settings_of(
    objects: tuple[Object, ...], workload: Object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """Load the settings as the proxy of that workload would, with the secrets that it would find."""
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    for variable in container["env"]:
        name = variable["name"]
        if name.startswith("DISKLESS_PROXY_"):
            monkeypatch.setenv(name, "redis://:secret@redis:6379" if name.endswith("URL") else "anything")
    (file,) = [volume["configMap"]["name"] for volume in pod["volumes"] if volume["name"] == "config"]
    (config,) = [one for one in of_kind(objects, "ConfigMap") if one["metadata"]["name"] == file]
    path = tmp_path / "proxy.yaml"
    path.write_text(config["data"]["proxy.yaml"])
    return load_settings(path)


@every_values_file
def test_lint(values: Path) -> None:
    done = helm("lint", "--strict", "--kube-version", KUBERNETES[-1], CHART, "--values", values)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kubernetes", KUBERNETES)
@every_values_file
def test_every_object_matches_its_schema(values: Path, kubernetes: str) -> None:
    objects = rendered(values, kubernetes=kubernetes)
    for one in objects:
        check_schema(one, kubernetes)
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(names) == len(set(names))


@every_values_file
def test_pods_are_restricted_and_whole(values: Path) -> None:
    found = list(pods(rendered(values)))
    assert found
    for _, pod in found:
        check_restricted(pod)
        check_whole(pod)


@every_values_file
def test_the_proxies_can_read_their_file(values: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = rendered(values)
    racks = [rack["name"] for rack in yaml.safe_load(values.read_text())["racks"]]
    read = [settings_of(objects, workload, tmp_path, monkeypatch) for workload in workloads(objects)]
    assert sorted(settings.rack for settings in read) == sorted(racks)
    assert len({settings.listeners.advertised_host for settings in read}) == len(racks)
    # Clients that use a Service reach the pod from outside.
    assert {one.host for settings in read for one in settings.all_listeners} == {"0.0.0.0"}


def test_buffers_and_caches_fit_into_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = rendered(SMALL)
    for workload in workloads(objects):
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        limit_bytes = int(container["resources"]["limits"]["memory"].removesuffix("Mi")) << 20
        assert of_memory(settings_of(objects, workload, tmp_path, monkeypatch), limit_bytes).level is Level.OK


@every_values_file
def test_every_advertised_port_is_in_the_service(values: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = rendered(values)
    services = {one["metadata"]["name"]: one["spec"] for one in of_kind(objects, "Service")}
    for workload in workloads(objects):
        name = workload["metadata"]["name"]
        settings = settings_of(objects, workload, tmp_path, monkeypatch)
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
        inside = [one for one in settings.all_listeners if one.client_host == f"{name}.kafka.svc"]
        outside = [one for one in settings.all_listeners if one not in inside]
        for ranges, service, kind in ((inside, name, "ClusterIP"), (outside, f"{name}-outside", "LoadBalancer")):
            ports = {port for listeners in ranges for port in listeners.ports.values()}
            assert {port["port"] for port in services.get(service, {"ports": ()})["ports"]} == ports
            if ports:
                assert services[service]["type"] == kind
                assert all(port["port"] == port["targetPort"] for port in services[service]["ports"])
                assert services[service]["selector"].items() <= labels.items()


def test_a_load_balancer_has_the_ranges_that_are_named_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The range for clients inside the cluster may have no TLS or authentication."""
    objects = rendered(FULL)
    for workload in workloads(objects):
        settings = settings_of(objects, workload, tmp_path, monkeypatch)
        tls, internal = settings.all_listeners
        assert (tls.name, internal.name) == ("TLS", "INTERNAL")
        assert tls.client_host.endswith(".example.com")
        assert internal.client_host == f"{workload['metadata']['name']}.kafka.svc"
        assert tls.tls is not None
        assert internal.tls is None
    balanced = [one["spec"] for one in of_kind(objects, "Service") if one["spec"].get("type") == "LoadBalancer"]
    assert len(balanced) == 2
    ports = set(settings.all_listeners[0].ports.values())
    assert all({port["port"] for port in service["ports"]} == ports for service in balanced)
    (common,) = [one for one in of_kind(objects, "Service") if one["metadata"]["name"] == "test-diskless-proxy"]
    assert [port["port"] for port in common["spec"]["ports"]] == [9092], "of the range inside"


def test_the_certificate_can_be_that_of_another_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ("service.listeners={INTERNAL}", "secrets.listenerTls.listeners={INTERNAL}", "config.listeners.tls=null")
    objects = rendered(FULL, *settings)
    for workload in workloads(objects):
        first, second = settings_of(objects, workload, tmp_path, monkeypatch).all_listeners
        assert first.tls is None
        assert second.tls is not None
        assert first.client_host.endswith(".svc")
        assert second.client_host.endswith(".example.com")


def test_a_load_balancer_for_the_only_range_has_it() -> None:
    settings = [f"racks[{number}].advertisedHost=kafka-{number}.example.com" for number in range(3)]
    objects = rendered(SMALL, "service.type=LoadBalancer", *settings)
    kinds = [one["spec"].get("type") for one in of_kind(objects, "Service")]
    assert sorted(kinds, key=str) == ["ClusterIP", "LoadBalancer", "LoadBalancer", "LoadBalancer", None]


@every_values_file
def test_a_pod_has_time_to_drain(values: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = rendered(values)
    for workload in workloads(objects):
        settings = settings_of(objects, workload, tmp_path, monkeypatch)
        pod = workload["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        needed = before + settings.limits.drain_timeout_ms / 1000
        assert pod["terminationGracePeriodSeconds"] >= needed + 10


@every_values_file
def test_probes_are_answered_by_the_admin_port(values: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = rendered(values)
    for workload in workloads(objects):
        settings = settings_of(objects, workload, tmp_path, monkeypatch)
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports == {"bootstrap": settings.listeners.bootstrap_port, "admin": settings.admin.port}
        assert settings.admin.host == "0.0.0.0", "probes come from outside of the pod"
        probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
        assert {probe["port"] for probe in probes.values()} == {"admin"}
        assert probes["readiness"]["path"] == "/servez", "clients of classic topics need no Redis"
        assert probes["startup"]["path"] == probes["liveness"]["path"] == "/healthz", "no restart while Redis is away"


@every_values_file
def test_racks_stay_in_their_zones(values: Path) -> None:
    racks = yaml.safe_load(values.read_text())["racks"]
    objects = rendered(values)
    zones = []
    for workload in workloads(objects):
        affinity = workload["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        (expression,) = term["matchExpressions"]
        assert (expression["key"], expression["operator"]) == ("topology.kubernetes.io/zone", "In")
        zones += expression["values"]
    assert sorted(zones) == sorted(rack.get("zone", rack["name"]) for rack in racks)
    budgets = of_kind(objects, "PodDisruptionBudget")
    deployments = of_kind(objects, "Deployment")  # nothing computes the budget of a DaemonSet
    assert {one["metadata"]["name"] for one in budgets} == {one["metadata"]["name"] for one in deployments}


@every_values_file
def test_secrets_are_named_and_never_rendered(values: Path) -> None:
    objects = rendered(values)
    assert not of_kind(objects, "Secret")
    for _, pod in pods(objects):
        for container in containers(pod):
            for variable in container.get("env", ()):
                if re.search("URL|KEY|SECRET|PASSWORD|TOKEN", variable["name"]):
                    assert "secretKeyRef" in variable["valueFrom"]


def test_secrets_that_are_reloaded_come_as_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = rendered(FULL)
    workload = workloads(objects)[0]
    settings = settings_of(objects, workload, tmp_path, monkeypatch)
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    items = {volume["name"]: volume["secret"]["items"] for volume in pod["volumes"] if "secret" in volume}
    files = {
        f"{mount['mountPath']}/{item['path']}"
        for mount in container["volumeMounts"]
        for item in items.get(mount["name"], ())
    }
    brokers, tls = settings.brokers, settings.listeners.tls
    assert brokers.sasl is not None
    assert brokers.tls is not None
    assert tls is not None
    assert files == {
        brokers.sasl.password_file,
        brokers.tls.ca_file,
        tls.certificate_file,
        tls.key_file,
        str(settings.admin.token_file),
    }
    assert settings.redis.url == "redis://:secret@redis:6379"


def test_one_name_for_clients_of_all_zones() -> None:
    (service,) = [
        one for one in of_kind(rendered(SMALL), "Service") if one["metadata"]["name"] == "test-diskless-proxy"
    ]
    assert service["spec"]["trafficDistribution"] == "PreferClose"
    for workload in workloads(rendered(SMALL)):
        assert service["spec"]["selector"].items() <= workload["spec"]["template"]["metadata"]["labels"].items()
    (older,) = [
        one
        for one in of_kind(rendered(SMALL, kubernetes="1.29"), "Service")
        if one["metadata"]["name"] == "test-diskless-proxy"
    ]
    assert older["metadata"]["annotations"] == {"service.kubernetes.io/topology-mode": "Auto"}


def test_the_services_do_not_select_jobs_and_checks() -> None:
    objects = rendered(FULL)
    (job,) = of_kind(objects, "CronJob")
    others = [job["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]]
    others += [one["metadata"]["labels"] for one in of_kind(objects, "Pod")]
    for service in of_kind(objects, "Service"):
        assert not any(service["spec"]["selector"].items() <= labels.items() for labels in others)


def test_the_network_policy_has_every_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = rendered(FULL)
    policy, _ = of_kind(objects, "NetworkPolicy")
    clients, monitoring = policy["spec"]["ingress"]
    settings = [settings_of(objects, workload, tmp_path, monkeypatch) for workload in workloads(objects)]
    ports = {port for one in settings for listeners in one.all_listeners for port in listeners.ports.values()}
    assert {port["port"] for port in clients["ports"]} == ports
    assert [port["port"] for port in monitoring["ports"]] == [settings[0].admin.port]
    assert len(policy["spec"]["egress"]) == 4, "DNS, the fleet, and the two of the values"


def test_checks_and_jobs_may_not_reach_more_than_proxies() -> None:
    objects = rendered(FULL)
    proxies, others = (policy["spec"] for policy in of_kind(objects, "NetworkPolicy"))
    assert others["egress"] == proxies["egress"]
    assert others["policyTypes"] == ["Egress"], "the node's probes do not come to them"
    (expression,) = others["podSelector"]["matchExpressions"]
    (job,) = of_kind(objects, "CronJob")
    for labels in (
        job["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"],
        *(one["metadata"]["labels"] for one in of_kind(objects, "Pod")),
    ):
        assert others["podSelector"]["matchLabels"].items() <= labels.items()
        assert labels[expression["key"]] in expression["values"]
    assert not of_kind(rendered(FULL, "networkPolicy.egress=null"), "NetworkPolicy")[1:]


def test_checks_and_jobs_run_where_proxies_may_run() -> None:
    objects = rendered(FULL)
    proxy = workloads(objects)[0]["spec"]["template"]["spec"]
    placed = ("nodeSelector", "tolerations")
    assert all(proxy[key] for key in placed)
    (job,) = of_kind(objects, "CronJob")
    checks = [one["spec"] for one in of_kind(objects, "Pod")]
    for pod in (job["spec"]["jobTemplate"]["spec"]["template"]["spec"], *checks):
        assert {key: pod[key] for key in placed} == {key: proxy[key] for key in placed}
    assert [one["affinity"] for one in checks] == [
        one["spec"]["template"]["spec"]["affinity"] for one in workloads(objects)
    ], "in the zone of the rack"


def test_the_monitor_finds_the_admin_service() -> None:
    objects = rendered(FULL)
    (monitor,) = of_kind(objects, "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    (found,) = [one for one in of_kind(objects, "Service") if wanted.items() <= one["metadata"]["labels"].items()]
    assert found["spec"]["clusterIP"] == "None"
    assert [port["name"] for port in found["spec"]["ports"]] == [one["port"] for one in monitor["spec"]["endpoints"]]


def regex_of(rules: Object, alert: str, label: str) -> str:
    (rule,) = [one for group in rules["spec"]["groups"] for one in group["rules"] if one.get("alert") == alert]
    (pattern, *same) = re.findall(rf'{label}=~"([^"]*diskless[^"]*)"', rule["expr"])
    assert set(same) <= {pattern}
    return str(pattern)


@pytest.mark.parametrize("setting", ["nameOverride=", "nameOverride=edge", "fullnameOverride=edge"])
def test_alerts_use_the_names_of_the_charts_objects(setting: str) -> None:
    objects = rendered(FULL, setting)
    (rules,) = of_kind(objects, "PrometheusRule")
    (job,) = of_kind(objects, "CronJob")
    name = job["metadata"]["name"]
    assert re.fullmatch(regex_of(rules, "DisklessProxyPipelineNotRun", "cronjob"), name)
    assert re.fullmatch(regex_of(rules, "DisklessProxyPipelineFailed", "job_name"), f"{name}-29400557")
    (monitor,) = of_kind(objects, "ServiceMonitor")
    (relabeling,) = monitor["spec"]["endpoints"][0]["relabelings"]
    assert relabeling["targetLabel"] == "job"
    assert re.fullmatch(regex_of(rules, "DisklessProxyDown", "job"), relabeling["replacement"])


def test_the_standard_names_work_without_the_chart() -> None:
    rules = {"spec": yaml.safe_load((CHART.parents[1] / "prometheus" / "alerts.yaml").read_text())}
    for name in ("diskless-pipeline", "kafka-diskless-proxy-pipeline"):
        assert re.fullmatch(regex_of(rules, "DisklessProxyPipelineNotRun", "cronjob"), name)


def test_links_to_runbooks_are_configurable() -> None:
    base = "https://docs.example.com/alerts"
    (rules,) = of_kind(rendered(FULL, f"monitoring.prometheusRule.runbooks={base}"), "PrometheusRule")
    links = [
        one["annotations"]["runbook_url"]
        for group in rules["spec"]["groups"]
        for one in group["rules"]
        if "alert" in one
    ]
    assert f"{base}#disklessproxydown" in links
    assert all(link.startswith(f"{base}#") for link in links)


def test_each_pod_registers_its_own_address_with_the_fleet() -> None:
    for workload in workloads(rendered(SMALL)):
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        (variable,) = [one for one in container["env"] if one["name"] == "DISKLESS_PROXY_ADMIN__ADVERTISED_HOST"]
        assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_rules_and_dashboards_are_the_standard_ones() -> None:
    deploy = CHART.parents[1]
    objects = rendered(FULL)
    (rules,) = of_kind(objects, "PrometheusRule")
    groups = [
        group
        for path in sorted((deploy / "prometheus").glob("*.yaml"))
        for group in (yaml.safe_load(path.read_text()) or {}).get("groups", [])
    ]
    assert groups
    text = json.dumps(groups).replace("diskless(-proxy)?-pipeline", "(diskless(-proxy)?|test-diskless-proxy)-pipeline")
    assert rules["spec"]["groups"] == json.loads(text)
    (dashboards,) = [one for one in of_kind(objects, "ConfigMap") if one["metadata"]["name"].endswith("-dashboards")]
    files = {path.name: json.loads(path.read_text()) for path in (deploy / "grafana").glob("*.json")}
    assert files
    assert {name: json.loads(text) for name, text in dashboards["data"].items()} == files


def test_helm_test_runs_the_check_with_the_proxies_settings() -> None:
    objects = rendered(FULL)
    checks = of_kind(objects, "Pod")
    assert len(checks) == len(workloads(objects))
    for check, workload in zip(checks, workloads(objects), strict=True):
        assert check["metadata"]["annotations"]["helm.sh/hook"] == "test"
        (container,) = check["spec"]["containers"]
        (proxy,) = workload["spec"]["template"]["spec"]["containers"]
        assert container["args"] == ["check", *proxy["args"][1:]]
        assert container["volumeMounts"] == proxy["volumeMounts"]
        of_a_pod = ("DISKLESS_PROXY_PROXY_ID", "DISKLESS_PROXY_ADMIN__ADVERTISED_HOST")
        assert [one for one in proxy["env"] if one["name"] not in of_a_pod] == container["env"]


def test_a_daemon_set_serves_its_own_node() -> None:
    objects = rendered(DAEMON_SET)
    assert [one["kind"] for one in workloads(objects)] == ["DaemonSet", "DaemonSet"]
    for workload in workloads(objects):
        (service,) = [
            one for one in of_kind(objects, "Service") if one["metadata"]["name"] == workload["metadata"]["name"]
        ]
        assert service["spec"]["trafficDistribution"] == "PreferSameNode"


def test_the_values_in_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (CHART.parents[2] / "docs" / "deploy.md").read_text()
    (block,) = re.findall(r"```yaml\n# values.yaml\n(.*?)```", page, re.DOTALL)
    values = tmp_path / "values.yaml"
    values.write_text(block)
    objects = rendered(values)
    for workload in workloads(objects):
        assert settings_of(objects, workload, tmp_path, monkeypatch).listeners.node_ids == (0, 1, 2, 3, 4, 5)
    for one in objects:
        check_schema(one, KUBERNETES[-1])


def test_the_chart_has_the_version_of_this_release() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION
    assert {container["image"] for _, pod in pods(rendered(SMALL)) for container in containers(pod)} == {
        f"diskless-proxy:{VERSION}"
    }


@pytest.mark.parametrize("command", [("template", "test"), ("lint",)], ids=lambda command: command[0])
def test_the_default_values_report_missing_racks(command: tuple[str, ...]) -> None:
    done = helm(*command, CHART, "--kube-version", KUBERNETES[-1])
    printed = done.stdout + done.stderr
    assert "racks: name at least one, as broker.rack of the brokers there: --set 'racks[0].name=us-east-1a'" in printed
    assert "nil pointer" not in printed


def test_credentials_for_brokers_that_the_environment_names() -> None:
    values = ("racks[0].name=a", "secrets.brokerSasl.existingSecret=sasl", "secrets.brokerTls.existingSecret=tls")
    done = helm("template", "test", CHART, "--kube-version", KUBERNETES[-1], "--set", ",".join(values))
    assert done.returncode == 0, done.stderr
    assert "password_file: /etc/diskless-proxy-secrets/broker-sasl/password" in done.stdout


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("replicaz=2", "replicaz"),
        ("mode=StatefulSet", "mode"),
        ("config.rack=a", "rack"),
        ("config.listeners.broker_node_ids=many", "broker_node_ids"),
        ("config.fetch.cache_byte=1", "cache_byte"),
        ("racks[0].config.workers=0", "workers"),
        ("racks=null", "racks: name at least one"),
        ("secrets.redis.url=redis://secret", "url"),
        ("racks[1].name=US-east_1a", "those of us-east-1a have"),
        ("racks[1].name=admin", "test-diskless-proxy-admin, which the chart has for others"),
        ("racks[0].name=" + "a" * 60 + ",racks[1].name=" + "a" * 60 + "b", "shorten fullnameOverride"),
        ("service.type=LoadBalancer", "us-east-1a has no advertisedHost"),
        ("service.listeners={default}", "there is none; set service.type to LoadBalancer"),
        ("service.type=LoadBalancer,service.listeners={TLS}", "TLS is no range of"),
        ("secrets.listenerTls.existingSecret=tls,secrets.listenerTls.listeners={TLS}", "TLS is no range of"),
        (
            "service.type=LoadBalancer" + "".join(f",config.additional_listeners[0].{key}" for key in SECOND_RANGE),
            "name those of the ranges default, TLS that clients outside of the cluster come to",
        ),
        ("racks[0].sniBrokerHost=broker-{node_id}.example.com", "us-east-1a has sniBrokerHost and no advertisedHost"),
        ("racks[0].sniBrokerHost=broker.example.com", "sniBrokerHost"),
        ("racks[1].name=us-east-1a-outside", "the load balancer of us-east-1a has"),
    ],
)
def test_values_that_make_no_sense_are_rejected(setting: str, complaint: str) -> None:
    done = helm("template", "test", CHART, "--kube-version", KUBERNETES[-1], "--values", SMALL, "--set", setting)
    assert done.returncode == 1
    assert complaint in done.stderr


def test_the_package_has_rules_and_dashboards_in_it(tmp_path: Path) -> None:
    done = helm("package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        assert {"diskless-proxy/LICENSE", "diskless-proxy/README.md"} <= set(archive.getnames())
    done = helm("template", "test", package, "--kube-version", KUBERNETES[-1], "--values", FULL)
    assert done.returncode == 0, done.stderr
    kinds: list[Any] = [one["kind"] for one in yaml.safe_load_all(done.stdout) if one]
    assert "PrometheusRule" in kinds
