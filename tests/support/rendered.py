"""Kubernetes objects: the chart rendered by the real helm, and rules that every object must meet, from any source."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from referencing import Registry, Resource

from proxy.demo.servers import servers_directory

Object = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "diskless-proxy"
VALUES = sorted((CHART / "ci").glob("*.yaml"))
HELM = servers_directory() / "bin" / "helm"
CRDS = servers_directory() / "crds"
KUBERNETES = ("1.29", "1.37")
"""Oldest Kubernetes version that the chart supports, and the newest version with known schemas."""

needs_helm = pytest.mark.skipif(not HELM.exists(), reason="no helm in .servers/bin; `make setup` builds it")


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run helm and return its output."""
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False)


@cache
def rendered(
    values: Path, *settings: str, then: Path | None = None, kubernetes: str = "1.37", chart: Path = CHART
) -> tuple[Object, ...]:
    """Return the objects of release `test` in namespace `kafka`; callers must not change them. `then`: a second file of
    values."""
    sets = [word for setting in settings for word in ("--set", setting)]
    sets += ["--values", str(then)] if then is not None else []
    version = ("--kube-version", kubernetes, "--namespace", "kafka")
    done = helm("template", "test", chart, *version, "--values", values, *sets)
    assert done.returncode == 0, done.stderr
    return tuple(one for one in yaml.safe_load_all(done.stdout) if one)


def of_kind(objects: tuple[Object, ...], kind: str) -> list[Object]:
    """Return the objects of one kind."""
    return [one for one in objects if one["kind"] == kind]


def pods(objects: tuple[Object, ...]) -> Iterator[tuple[str, Object]]:
    """Yield every pod template with the object that contains it."""
    for one in objects:
        name, spec = f"{one['kind']} {one['metadata']['name']}", one.get("spec", {})
        if one["kind"] == "Pod":
            yield name, spec
        elif one["kind"] == "CronJob":
            yield name, spec["jobTemplate"]["spec"]["template"]["spec"]
        elif "template" in spec:
            yield name, spec["template"]["spec"]


def containers(pod: Object) -> list[Object]:
    """Return all containers, including sidecars."""
    return [*pod.get("initContainers", ()), *pod["containers"]]


def check_schema(one: Object, kubernetes: str) -> None:
    """Check an object against the schema of its kind, with no other field allowed."""
    if one["apiVersion"].startswith("monitoring.coreos.com/"):
        jsonschema.validate(one, custom_schema(one["kind"]))
    else:
        registry, schemas = _schemas(kubernetes)
        version = re.sub(r"^([^./]*)(\.[^/]*)?/", r"\1-", one["apiVersion"])
        schema = json.loads((schemas / f"{one['kind'].lower()}-{version}.json").read_text())
        jsonschema.Draft202012Validator(schema, registry=registry).validate(one)


@cache
def _schemas(kubernetes: str) -> tuple[Registry[Any], Path]:
    """Return a version's shared definitions and their path; kubernetes-validate itself reads all of them each time."""
    packaged = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    directory = packaged / f"v{kubernetes}.0-local-strict"
    common: Resource[Any] = Resource.from_contents(json.loads((directory / "_definitions.json").read_text()))
    return Registry().with_resource(common.id() or "", common), directory


@cache
def custom_schema(kind: str) -> Object:
    """Return the schema of one of the operator's kinds."""
    if not CRDS.exists():
        pytest.skip("no schemas in .servers/crds; `make setup` fetches them")
    definition = yaml.safe_load((CRDS / f"monitoring.coreos.com_{kind.lower()}s.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    return dict(_strict(version["schema"]["openAPIV3Schema"]), properties=_properties(version))


def _properties(version: Object) -> Object:
    schema = _strict(version["schema"]["openAPIV3Schema"])
    return {**schema["properties"], "metadata": {"type": "object"}}


def _strict(schema: Any) -> Any:
    """Forbid fields that the schema does not name. Patterns are Go's; Python cannot read all of them."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _strict(value) for key, value in schema.items() if key != "pattern" or isinstance(value, dict)}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        inner.setdefault("additionalProperties", False)
    return inner


def check_restricted(pod: Object) -> None:
    """Check the Pod Security Standard `restricted`, and that the root file system is read-only."""
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert pod.get("automountServiceAccountToken") is False
    for volume in pod.get("volumes", ()):
        (kind,) = set(volume) - {"name"}
        assert kind in {"configMap", "secret", "emptyDir", "projected", "csi", "downwardAPI", "ephemeral"}
    of_pod = pod.get("securityContext", {})
    for container in containers(pod):
        context = {**of_pod, **container.get("securityContext", {})}
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] > 0
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"] is True
        assert "privileged" not in context
        assert not any("hostPort" in port for port in container.get("ports", ()))


def check_whole(pod: Object) -> None:
    """Check that resources are bounded, images are pinned, and everything that is mounted exists."""
    there = {volume["name"] for volume in pod.get("volumes", ())}
    mounted = {mount["name"] for container in containers(pod) for mount in container.get("volumeMounts", ())}
    assert mounted <= there
    for container in containers(pod):
        image = container["image"]
        assert image.rpartition(":")[2] not in {"", "latest", image}
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"]["cpu"]
        paths = [mount["mountPath"] for mount in container.get("volumeMounts", ())]
        assert len(paths) == len(set(paths))
        for outer in paths:
            # Kubernetes cannot create a mount point in a read-only file system.
            assert not any(inner.startswith(f"{outer}/") for inner in paths), paths
