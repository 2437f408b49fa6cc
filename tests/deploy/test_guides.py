"""The manifests of the guides: valid, restricted, and Valkey as they start it is fit for the coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from proxy.config import Settings
from proxy.coordinator.commands import command_problem
from proxy.coordinator.connect import connect
from proxy.coordinator.fitness import fitness
from proxy.demo import servers
from proxy.demo.process import Process
from tests.docs.blocks import ROOT, all_blocks
from tests.support.ports import free_port
from tests.support.rendered import CHART, check_restricted, check_schema, check_whole
from tests.support.waiting import wait_for

KUBERNETES = ROOT / "deploy" / "kubernetes"
VALKEY = list(yaml.safe_load_all((KUBERNETES / "valkey.yaml").read_text()))


@pytest.mark.parametrize(
    ("page", "file"),
    [
        ("eks-msk.md", CHART / "ci" / "eks-msk-values.yaml"),
        ("strimzi.md", CHART / "ci" / "strimzi-values.yaml"),
        ("strimzi.md", KUBERNETES / "strimzi-user.yaml"),
    ],
    ids=lambda one: getattr(one, "stem", one),
)
def test_the_guide_shows_the_file(page: str, file: Path) -> None:
    shown = [
        yaml.safe_load(block.text)
        for block in all_blocks()
        if block.page == f"docs/guides/{page}" and block.language == "yaml"
    ]
    assert yaml.safe_load(file.read_text()) in shown


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_every_object_of_valkey_matches_its_schema(version: str) -> None:
    for one in VALKEY:
        check_schema(one, version)


def test_the_pod_of_valkey_is_restricted_and_whole() -> None:
    (stateful,) = [one for one in VALKEY if one["kind"] == "StatefulSet"]
    check_restricted(stateful["spec"]["template"]["spec"])
    volumes = stateful["spec"]["template"]["spec"]["volumes"] + [
        {"name": claim["metadata"]["name"], "emptyDir": {}} for claim in stateful["spec"]["volumeClaimTemplates"]
    ]
    check_whole(stateful["spec"]["template"]["spec"] | {"volumes": volumes})


@pytest.fixture
def valkey_url(tmp_path: Path) -> Iterator[str]:
    """Start Valkey with the manifest's configuration and users, on a port and in a folder of the test."""
    text = (KUBERNETES / "valkey.yaml").read_text()
    users = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#   user ")]
    assert len(users) == 2
    (tmp_path / "users.acl").write_text("\n".join(users).replace("PASSWORD", "hush") + "\n")
    port = free_port()
    (configured,) = [one["data"]["valkey.conf"] for one in VALKEY if one["kind"] == "ConfigMap"]
    here = {"/data": tmp_path, "/etc/valkey-users/users.acl": tmp_path / "users.acl", "port 6379": f"port {port}"}
    for there, mine in here.items():
        assert there in configured
        configured = configured.replace(there, str(mine))
    (tmp_path / "valkey.conf").write_text(f"{configured}bind 127.0.0.1\n")
    process = Process("valkey", [servers.valkey(), str(tmp_path / "valkey.conf")], tmp_path / "valkey.log")
    process.start()
    yield f"redis://diskless-proxy:hush@127.0.0.1:{port}"
    process.kill()


async def test_valkey_of_the_guides_is_fit_for_commits(valkey_url: str, tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {
            "rack": "a",
            "brokers": {"bootstrap": ["broker:9092"]},
            "redis": {"url": valkey_url, "require_append_fsync": "always"},
            "storage": {"url": tmp_path.as_uri()},
        }
    ).redis
    wait_for(lambda: "Ready to accept connections" in (tmp_path / "valkey.log").read_text(), "Valkey has not started")
    client = await connect(settings)
    try:
        found = await fitness(client, settings)
        assert (found.unfit, found.unasked, found.risks) == ((), (), ())
        assert await command_problem(client, settings) is None
    finally:
        await client.aclose()
