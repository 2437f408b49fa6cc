"""The compose file, read by the library of Docker Compose itself, and the files that it mounts."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.config import Settings, load_settings
from proxy.demo import servers
from proxy.demo.errors import StackError
from tests.support.prometheus import needs_prometheus, promtool

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "deploy" / "compose"
LOADER = servers.servers_directory() / "bin" / "compose-project"
RACKS = {"a": "rack-a", "b": "rack-b", "c": "rack-c"}

needs_loader = pytest.mark.skipif(not LOADER.exists(), reason="no compose-project in .servers/bin; see `make setup`")


@cache
def load(environment: str) -> subprocess.CompletedProcess[str]:
    command = [LOADER, COMPOSE / "compose.yaml", "/dev/stdin"]
    return subprocess.run(command, input=environment, capture_output=True, text=True, check=False)


def filled() -> str:
    return re.sub(r"^(\w+)=$", r"\1=from-\1", (COMPOSE / "example.env").read_text(), flags=re.MULTILINE)


def services(line: str = "") -> dict[str, Any]:
    """Return the services by name, with one more line in the environment."""
    done = load(f"{filled()}{line}\n")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)["services"])


def proxies(line: str = "") -> dict[str, Any]:
    found = services(line)
    return {rack: found[f"proxy-{letter}"] for letter, rack in RACKS.items()}


def settings_of(rack: str, monkeypatch: pytest.MonkeyPatch, line: str = "") -> Settings:
    proxy = proxies(line)[rack]
    for name, value in proxy["environment"].items():
        monkeypatch.setenv(name, value)
    (config,) = [one for one in proxy["volumes"] if one["target"] == "/etc/diskless-proxy/proxy.yaml"]
    assert config["read_only"] is True
    return load_settings(Path(config["source"]))


@needs_loader
def test_nothing_starts_without_passwords() -> None:
    done = load((COMPOSE / "example.env").read_text())
    assert done.returncode == 1
    for name in ("REDIS_PASSWORD", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY", "GRAFANA_PASSWORD"):
        assert f"{name} is missing a value: set it in .env" in done.stderr
        assert f"{name}=\n" in (COMPOSE / "example.env").read_text()


@needs_loader
def test_images_are_pinned() -> None:
    for name, service in services().items():
        assert re.fullmatch(r"[\w./-]+:v?\d+(\.\d+)+(-\w+)?", service["image"]), name


@needs_loader
def test_the_image_is_built_once_and_before_its_users() -> None:
    found = services()
    (builder,) = [name for name, service in found.items() if "build" in service]

    def waits_for_it(name: str) -> bool:
        return any(needed == builder or waits_for_it(needed) for needed in found[name].get("depends_on", ()))

    others = [name for name, one in found.items() if one["image"] == found[builder]["image"] and name != builder]
    assert len(others) == len(RACKS) + 1
    assert all(map(waits_for_it, others))


@needs_loader
def test_each_proxy_is_found_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [settings_of(rack, monkeypatch).admin.advertised_host for rack in RACKS.values()]
    assert hosts == [f"proxy-{letter}" for letter in RACKS]


@needs_loader
def test_every_service_waits_for_those_it_needs_and_has_a_health_check() -> None:
    found = services()
    for name, service in found.items():
        for needed, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in found[needed], f"{name} waits forever for {needed}"
            else:
                assert how["condition"] == "service_completed_successfully"
                assert found[needed].get("restart") in {None, "on-failure:20"}
    without = {name for name, service in found.items() if "healthcheck" not in service}
    assert without == {"bucket", "proxy-image"}


@needs_loader
def test_only_loopback_is_published_and_no_port_twice() -> None:
    published = [(one["host_ip"], one["published"]) for one in ports()]
    assert {host for host, _ in published} == {"127.0.0.1"}
    assert len(published) == len(set(published))


def ports() -> list[dict[str, Any]]:
    return [port for service in services().values() for port in service.get("ports", ())]


@needs_loader
@pytest.mark.parametrize("rack", RACKS.values())
def test_a_proxy_reads_its_file_and_every_advertised_port_is_published(
    rack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(rack, monkeypatch)
    assert settings.rack == rack
    assert settings.redis.url == "redis://:from-REDIS_PASSWORD@redis:6379/0"
    assert settings.storage.access_key_id == "from-S3_ACCESS_KEY_ID"
    published = {int(port["published"]): port["target"] for port in proxies()[rack]["ports"]}
    assert settings.listeners.client_host == "localhost"
    for port in settings.listeners.ports.values():
        assert published.pop(port) == port
    assert list(published.values()) == [settings.admin.port]
    nodes = {int(services()[f"broker-{n}"]["environment"]["KAFKA_NODE_ID"]) for n in (1, 2, 3)}
    assert set(settings.listeners.node_ids) == nodes


@needs_loader
def test_there_is_a_proxy_in_the_rack_of_every_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = {name: one["environment"] for name, one in services().items() if name.startswith("broker-")}
    assert sorted(one["KAFKA_BROKER_RACK"] for one in brokers.values()) == sorted(RACKS.values())
    for name, one in brokers.items():
        assert one["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{name}:9092"
    bootstrap = settings_of("rack-a", monkeypatch).brokers.bootstrap
    assert set(bootstrap) == {f"{name}:9092" for name in brokers}


@needs_loader
def test_a_proxy_has_time_to_drain_and_enough_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for rack, proxy in proxies().items():
        settings = settings_of(rack, monkeypatch)
        assert _seconds(proxy["stop_grace_period"]) >= settings.limits.drain_timeout_ms / 1000 + 10
        assert proxy["ulimits"]["nofile"]["soft"] >= 30_000, "three for each of 10,000 connections"
        assert proxy["read_only"] is True
        assert proxy["cap_drop"] == ["ALL"]


def _seconds(duration: str) -> float:
    minutes, seconds = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", duration).groups()  # type: ignore[union-attr]
    return 60 * int(minutes or 0) + int(seconds or 0)


@needs_loader
def test_redis_keeps_its_data() -> None:
    words = services()["redis"]["command"]
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--appendfsync"] == "always"
    assert options["--maxmemory-policy"] == "noeviction"
    assert options["--requirepass"] == "from-REDIS_PASSWORD"


@needs_loader
def test_every_mount_exists() -> None:
    for service in services().values():
        for volume in service.get("volumes", ()):
            if volume["type"] == "bind":
                assert Path(volume["source"]).exists(), volume


@needs_loader
def test_prometheus_scrapes_all_proxies_and_has_our_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    config = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())
    (scrape,) = config["scrape_configs"]
    (static,) = scrape["static_configs"]
    admin = settings_of("rack-a", monkeypatch).admin.port
    assert static["targets"] == [f"proxy-{letter}:{admin}" for letter in RACKS]
    example = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yaml").read_text())
    assert scrape["job_name"] == example["scrape_configs"][0]["job_name"], "alerts know the proxies by it"
    assert config["rule_files"] == [f"rules/{name}" for name in example["rule_files"]]


@needs_prometheus
def test_prometheus_accepts_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").write_text((COMPOSE / "prometheus.yml").read_text())
    (tmp_path / "rules").symlink_to(ROOT / "deploy" / "prometheus")
    assert "SUCCESS" in promtool("check", "config", str(tmp_path / "prometheus.yml"))


@needs_loader
def test_the_image_of_apache_kafka_understands_the_environment(tmp_path: Path) -> None:
    """Use the class that the image runs at its start, from Kafka's jars: it writes the properties and formats the
    storage."""
    try:
        java, class_path = servers.java(), servers.kafka_class_path()
    except StackError as error:
        pytest.skip(str(error))
    broker = services()["broker-2"]
    assert broker["image"].endswith(":" + _kafka_version(class_path))
    defaults, mounted, final = (tmp_path / name for name in ("defaults", "mounted", "final"))
    for directory in (defaults, mounted, final):
        directory.mkdir()
    for name in ("server.properties", "log4j2.yaml", "tools-log4j2.yaml"):
        (defaults / name).write_text("")
    logs = tmp_path / "logs"
    environment = broker["environment"] | {"KAFKA_LOG_DIRS": str(logs)}
    command = [java, "-Xmx128m", "-cp", class_path, "kafka.docker.KafkaDockerWrapper", "setup"]
    directories = ["-D", str(defaults), "-M", str(mounted), "-F", str(final)]
    done = subprocess.run([*command, *directories], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    written = dict(line.split("=", 1) for line in (final / "server.properties").read_text().splitlines() if "=" in line)
    assert written["broker.rack"] == "rack-b"
    assert written["node.id"] == "2"
    assert written["advertised.listeners"] == "PLAINTEXT://broker-2:9092"
    assert f"cluster.id={environment['CLUSTER_ID']}" in (logs / "meta.properties").read_text()


def _kafka_version(class_path: str) -> str:
    (jar,) = Path(class_path).parent.glob("kafka_2.13-*.jar")
    return jar.stem.removeprefix("kafka_2.13-")
