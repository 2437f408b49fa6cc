"""Run `diskless-proxy check` on buckets: a good one, in which nothing is left behind, and unusable ones."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from proxy.config import Storage
from proxy.demo.ports import HOST, ReservedPorts
from proxy.demo.proxies import merged
from proxy.demo.s3 import SeaweedFS
from tests.integration.coordinator.conftest import Store
from tests.support.checking import checked, findings, written
from tests.support.misconfigurations import Misconfiguration, Needs, needing
from tests.support.s3_double import Faults, s3_double

SECRET = "hush-hush-hush"
WRONG_REGION = "the region 'us-east-1' is wrong; expecting 'eu-west-1'"
FAULTS = {
    "bucket_denied": Faults(refusal=(403, "AccessDenied", "Access Denied")),
    "bucket_region": Faults(refusal=(400, "AuthorizationHeaderMalformed", WRONG_REGION)),
    "bucket_overwrites": Faults(overwrites=True),
    "clock": Faults(behind=timedelta(hours=2)),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    store = Store(tmp_path_factory.mktemp("store"))
    store.start()
    yield store
    store.stop()


@pytest.fixture(scope="module")
def reserved() -> Any:
    reserved = ReservedPorts(None, proxies=1)
    yield reserved
    reserved.release()


def settings(store: Store, reserved: ReservedPorts, storage: dict[str, Any]) -> dict[str, Any]:
    """Return settings without reachable brokers: findings about these are ignored here."""
    ports = reserved.ports
    return {
        "rack": "rack-a",
        "listeners": {"bootstrap_port": ports.bootstrap(0), "broker_port_start": ports.broker_port_start(0)},
        "admin": {"port": ports.admin(0)},
        "brokers": {"bootstrap": [f"{HOST}:1"]},
        "redis": {"url": store.url, "timeout_ms": 8_000},
        "storage": storage,
    }


@pytest.mark.parametrize("case", needing(Needs.BUCKET), ids=lambda case: case.name)
def test_an_unusable_bucket(
    case: Misconfiguration, store: Store, reserved: ReservedPorts, s3_settings: Storage, tmp_path: Path
) -> None:
    storage = s3_settings.model_dump()
    with ExitStack() as running:
        if case.name in FAULTS:
            endpoint = running.enter_context(s3_double(FAULTS[case.name]))
            wrong = {"url": "s3://bucket/prefix", "endpoint_url": endpoint, "secret_access_key": SECRET}
        else:
            wrong = {
                "bucket_missing": {"url": "s3://no-such-bucket/prefix"},
                "bucket_key": {"secret_access_key": SECRET},
            }[case.name]
        path = written(tmp_path, settings(store, reserved, merged(storage, wrong)))
        done = checked(path)
    assert done.exit_code == 1
    assert SECRET not in done.stdout + done.stderr
    lines = [line.strip().removeprefix("✗ error").strip() for line in done.stdout.splitlines() if "✗" in line]
    lines = [line for line in lines if not line.startswith("brokers.bootstrap")]
    assert len(lines) == 1, lines
    assert case.pattern.fullmatch(lines[0]), (case.line, lines)


def test_a_good_bucket_is_left_as_it_was(
    store: Store, reserved: ReservedPorts, s3_settings: Storage, s3_server: SeaweedFS, tmp_path: Path
) -> None:
    path = written(tmp_path, settings(store, reserved, s3_settings.model_dump()))
    found = [finding for finding in findings(path) if finding["kind"] == "object storage"]
    assert [finding["level"] for finding in found] == ["ok"]
    assert "range, If-None-Match, list and delete work" in found[0]["text"]
    bucket, _, prefix = s3_settings.url.removeprefix("s3://").partition("/")
    client = s3_server.client()
    try:
        assert client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("KeyCount", 0) == 0
    finally:
        client.close()
