"""Jobs with spark-submit on a master and two workers. Their Python lacks the project, which comes in an archive."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.packing import pack
from proxy.config import Settings
from tests.support.keyed import Keyed, keyed_batch, log_records, write_batches
from tests.support.segments import make_topic, write_segments
from tests.support.spark_cluster import PLAIN_PYTHON, SPARK_HOME, SparkCluster

pytestmark = pytest.mark.timeout(400)
HERE = Path(__file__).parent
MAIN = HERE.parents[1] / "pipeline" / "__main__.py"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = tmp_path_factory.mktemp("packed") / "packages.tar.gz"
    assert pack(archive).packages > 10
    return archive


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def conf(**more: str) -> list[str]:
    """Return the settings that docs/pipeline/cluster.md describes, and those that keep the tests small."""
    settings = {
        "spark.executorEnv.PYTHONPATH": "packages",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
    } | {f"spark.{part}.extraJavaOptions": "-XX:TieredStopAtLevel=1" for part in ("driver", "executor")}
    return [word for name, value in (settings | more).items() for word in ("--conf", f"{name}={value}")]


def test_the_workers_python_has_no_packages() -> None:
    for name in ("proxy", "pipeline"):
        tried = subprocess.run([PLAIN_PYTHON, "-c", f"import {name}"], cwd="/", capture_output=True, check=False)
        assert b"ModuleNotFoundError" in tried.stderr, name


def test_tasks_run_on_all_workers_with_packages_of_the_archive(
    cluster: SparkCluster, packages: Path, light_config: Path, light_settings: Settings
) -> None:
    topic = asyncio.run(make_topic(light_settings, "on-cluster", 4))
    asyncio.run(write_segments(light_settings, topic, 3))
    options = ["--master", cluster.master, *conf(**{"spark.archives": f"{packages}#packages"})]
    done = cluster.run([sys.executable, str(HERE / "on_cluster.py"), "--config", str(light_config), *options])
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    assert reported["master"] == cluster.master
    answers = reported["answers"]
    assert answers.pop("3") == "ValueError: task 3 fails on every executor"
    assert {task: answer["rows"] for task, answer in answers.items()} == {"0": 3, "1": 3, "2": 3}
    for answer in answers.values():
        assert answer["python"] == PLAIN_PYTHON
        directory = Path(answer["executor"])
        assert directory.is_relative_to(cluster.directory)
        for module in answer["modules"]:
            assert Path(directory, module).resolve().is_relative_to(directory), module
        assert not [path for path in answer["packages"] if Path(PLAIN_PYTHON).parents[1] not in Path(path).parents]
    assert len({Path(answer["executor"]).parents[1] for answer in answers.values()}) == 2


def test_a_job_by_spark_submit(
    cluster: SparkCluster, packages: Path, light_config: Path, light_settings: Settings
) -> None:
    topic = asyncio.run(make_topic(light_settings, "submitted", 2))
    asyncio.run(write_segments(light_settings, topic, 8))
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.master]
    submit += ["--archives", f"{packages}#packages", *conf(**{"spark.log.level": "WARN"})]
    job = [str(MAIN), "merge", "--config", str(light_config), "--min-age", "0s", "--json"]
    done = cluster.run([*submit, *job])
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout.splitlines()[-1])  # spark-submit mixes standard error into it
    assert reported["findings"] == []
    assert (reported["figures"]["objects_written"], reported["figures"]["rows_merged"]) == (1, 16)
    missing = cluster.run([*submit, str(MAIN), "merge", "--config", "missing.yaml"])
    assert missing.returncode == 1
    assert "error: can't read missing.yaml" in missing.stdout


def test_a_compaction_by_spark_submit(
    cluster: SparkCluster, packages: Path, light_config: Path, light_settings: Settings
) -> None:
    topic = asyncio.run(make_topic(light_settings, "submitted", 2, {"cleanup.policy": "compact"}))
    for number in range(4):
        batches = [(partition, keyed_batch([Keyed(b"key", b"%d" % number)])) for partition in range(2)]
        asyncio.run(write_batches(light_settings, topic, batches))
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.master]
    submit += ["--archives", f"{packages}#packages", *conf(**{"spark.sql.shuffle.partitions": "2"})]
    job = [str(MAIN), "compact", "--config", str(light_config), "--task-bytes", "300", "--json"]
    done = cluster.run([*submit, *job])
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout.splitlines()[-1])
    assert reported["findings"] == []
    assert (reported["figures"]["logs_compacted"], reported["figures"]["records_after"]) == (2, 2)
    for partition in range(2):
        assert [record.offset for record in asyncio.run(log_records(light_settings, topic, partition))] == [3]
