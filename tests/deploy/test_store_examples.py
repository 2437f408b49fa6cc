"""Each managed store has an example for a settings file, for the chart and for compose, and they say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.config import Redis, load_settings
from tests.deploy.test_compose import COMPOSE, needs_loader, settings_of
from tests.support.rendered import CHART, ROOT, check_schema, check_whole, needs_helm, of_kind, pods, rendered

STORES = ("azure-managed-redis", "elasticache", "memorydb", "memorystore", "valkey-operator")
MARKS = re.compile(r"\b(expected to work|is tested)\b", re.IGNORECASE)

every_store = pytest.mark.parametrize("store", STORES)


def in_config(store: str) -> Redis:
    """Return the section of the example in deploy/config, where a password may be in a file."""
    return load_settings(ROOT / "deploy" / "config" / f"{store}.yaml").redis


@every_store
def test_each_example_says_whether_it_is_tested(store: str) -> None:
    for path in (ROOT / "deploy" / "config" / f"{store}.yaml", CHART / "stores" / f"{store}.yaml"):
        comment = " ".join(line.lstrip("# ") for line in path.read_text().splitlines() if line.startswith("#"))
        assert MARKS.search(comment), path


@needs_helm
@every_store
def test_the_chart_takes_the_stores_values_after_the_users(store: str, tmp_path: Path) -> None:
    objects = rendered(CHART / "ci" / "small-values.yaml", then=CHART / "stores" / f"{store}.yaml")
    for one in objects:
        check_schema(one, "1.37")
    for _, pod in pods(objects):
        check_whole(pod)
    configs = [one["data"]["proxy.yaml"] for one in of_kind(objects, "ConfigMap") if "proxy.yaml" in one["data"]]
    assert configs
    for number, text in enumerate(configs):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        found, expected = load_settings(path).redis, in_config(store)
        assert (found.shards, found.durability) == (expected.shards, expected.durability)
        assert found.url.partition("?")[0] == expected.url.partition("?")[0]
        assert Path(found.password_file).name == ("" if found.aws_iam else Path(expected.password_file).name)


@needs_loader
@every_store
def test_compose_takes_the_stores_url(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = (COMPOSE / "example.env").read_text()
    (line,) = re.findall(rf"^# {store} \(\w+\): (REDIS_URL=.*)$", environment, re.MULTILINE)
    expected = in_config(store).url.partition("?")[0]
    settings = settings_of("rack-a", monkeypatch, line)
    assert re.sub(r"(?<=//):PASSWORD@|:PASSWORD(?=@)", "", settings.redis.url) == expected
