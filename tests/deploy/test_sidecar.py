"""The pod sidecar: the example and the chart's template are equal."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from proxy.check.findings import Level
from proxy.check.limits import of_memory
from proxy.config import ConfigError, load_settings
from tests.support.rendered import (
    CHART,
    ROOT,
    Object,
    check_restricted,
    check_schema,
    check_whole,
    helm,
    needs_helm,
    of_kind,
    rendered,
)

EXAMPLE = ROOT / "deploy" / "kubernetes" / "sidecar.yaml"
CRON_JOB = ROOT / "deploy" / "kubernetes" / "pipeline-cronjob.yaml"
FIRST_WITH_ZONE_LABELS = "1.35"


def objects(path: Path = EXAMPLE) -> tuple[Object, ...]:
    return tuple(yaml.safe_load_all(path.read_text()))


def pod() -> Object:
    (deployment,) = of_kind(objects(), "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


@pytest.mark.parametrize("kubernetes", ["1.29", FIRST_WITH_ZONE_LABELS, "1.37"])
@pytest.mark.parametrize("path", [EXAMPLE, CRON_JOB], ids=lambda path: path.stem)
def test_every_object_matches_its_schema(path: Path, kubernetes: str) -> None:
    for one in objects(path):
        check_schema(one, kubernetes)


def test_the_pod_is_restricted_and_whole() -> None:
    check_restricted(pod())
    check_whole(pod())


def test_the_proxy_is_a_native_sidecar_that_starts_first() -> None:
    (sidecar,) = pod()["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["startupProbe"]["httpGet"]["path"] == "/servez"
    assert sidecar["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_its_settings_are_readable_and_only_the_pod_can_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config,) = of_kind(objects(), "ConfigMap")
    path = tmp_path / "proxy.yaml"
    path.write_text(config["data"]["proxy.yaml"])
    with pytest.raises(ConfigError, match="rack"):
        load_settings(path)
    monkeypatch.setenv("DISKLESS_PROXY_RACK", "us-east-1a")
    monkeypatch.setenv("DISKLESS_PROXY_PROXY_ID", "orders-1")
    settings = load_settings(path)
    assert (settings.rack, settings.identity) == ("us-east-1a", "orders-1")
    assert settings.listeners.client_host == "127.0.0.1"
    assert settings.listeners.name != "default", "proxies per zone would advertise loopback to their clients"
    (application,) = pod()["containers"]
    assert {
        "name": "KAFKA_BOOTSTRAP_SERVERS",
        "value": f"localhost:{settings.listeners.bootstrap_port}",
    } in application["env"]
    drain_s = settings.limits.drain_timeout_ms / 1000
    assert pod()["terminationGracePeriodSeconds"] >= drain_s + 10
    (sidecar,) = pod()["initContainers"]
    limit_bytes = int(sidecar["resources"]["limits"]["memory"].removesuffix("Mi")) << 20
    assert of_memory(settings, limit_bytes).level is Level.OK


@needs_helm
def test_a_chart_that_depends_on_ours_can_include_it(tmp_path: Path) -> None:
    parent = tmp_path / "orders"
    (parent / "templates").mkdir(parents=True)
    dependency = {"name": "diskless-proxy", "version": "0.1.0", "repository": CHART.as_uri()}
    about = {"apiVersion": "v2", "name": "orders", "version": "1.0.0", "dependencies": [dependency]}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(about))
    (parent / "values.yaml").write_text(yaml.safe_dump({"diskless-proxy": {"mode": "none"}}))
    include = 'include "diskless-proxy.sidecar" (dict "root" $ "secret" "diskless-proxy") | nindent 8'
    (parent / "templates" / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: orders}\nspec:\n  initContainers:\n"
        f"      - {{{{- {include} }}}}\n"
        "  containers: [{name: orders, image: 'orders:1.0.0'}]\n"
        "  volumes: [{name: diskless-proxy, configMap: {name: orders-proxy}}]\n"
    )
    done = helm("dependency", "build", parent)
    assert done.returncode == 0, done.stderr
    (found,) = rendered(parent / "values.yaml", chart=parent)
    check_schema(found, "1.37")
    (included,) = found["spec"]["initContainers"]
    (example,) = pod()["initContainers"]
    alone = ("runAsNonRoot", "runAsUser", "seccompProfile")
    context = {key: value for key, value in included["securityContext"].items() if key not in alone}
    optional = [{"secretRef": {"name": "diskless-proxy"}}]
    assert {**included, "securityContext": context} == {**example, "envFrom": optional}
    assert included["securityContext"]["runAsNonRoot"] is True
