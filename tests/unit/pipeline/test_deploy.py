"""The schedules in deploy/: their commands exist, and their other parts fit together."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from pipeline.commands import app
from pipeline.commands.jobs import JOBS
from pipeline.memory import BESIDE_TASK_BYTES
from pipeline.merge.options import MergeOptions

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
SERVICE = DEPLOY / "systemd" / "diskless-pipeline@.service"
TIMER = DEPLOY / "systemd" / "diskless-pipeline@.timer"
CRON_JOB = DEPLOY / "kubernetes" / "pipeline-cronjob.yaml"


def parsed(arguments: list[str]) -> dict[str, Any]:
    """Parse the options as the command line does; fails the test if they are invalid."""
    command = typer.main.get_command(app)
    name, *rest = arguments
    found = command.commands[name]  # type: ignore[attr-defined]
    return dict(found.make_context(name, rest).params)


def unit(path: Path) -> configparser.ConfigParser:
    read = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",))
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(path.read_text())
    return read


def cron_job() -> dict[str, Any]:
    return manifest("CronJob")


def manifest(kind: str) -> dict[str, Any]:
    (found,) = (one for one in yaml.safe_load_all(CRON_JOB.read_text()) if one["kind"] == kind)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("job", JOBS)
def test_the_service_runs_every_job(job: str) -> None:
    line = unit(SERVICE)["Service"]["ExecStart"].replace("%i", job)
    program, *arguments = shlex.split(line)
    assert Path(program).is_absolute()
    assert arguments[:2] == ["pipeline", job]
    assert arguments[-1] == "$OPTIONS"
    assert parsed(arguments[1:-1])["config"] == Path("/etc/diskless-proxy/proxy.yaml")


def test_the_service_lets_tasks_finish() -> None:
    service = unit(SERVICE)["Service"]
    assert service["KillMode"] == "mixed"
    assert service["SuccessExitStatus"] == "143"
    assert unit(TIMER)["Install"]["WantedBy"] == "timers.target"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for path in (SERVICE, TIMER):
        text = (
            path.read_text()
            .replace("/opt/diskless-proxy/bin/diskless-proxy", "/bin/true")
            .replace("User=diskless-proxy", "User=root")
        )
        (tmp_path / path.name.replace("@", "@merge")).write_text(text)
    units = [str(path) for path in sorted(tmp_path.iterdir())]
    verified = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stderr


def test_the_cron_job_runs_jobs_that_there_are() -> None:
    (container,) = cron_job()["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["diskless-proxy"]
    assert container["args"][0] == "pipeline"
    options = parsed(container["args"][1:])
    assert options["config"] == Path("/etc/diskless-proxy/proxy.yaml")
    for job in options["jobs"]:
        name, *own = shlex.split(job)
        assert parsed([name, "--config", "proxy.yaml", *own])


def test_the_cron_job_is_whole() -> None:
    found = cron_job()
    assert (found["apiVersion"], found["kind"]) == ("batch/v1", "CronJob")
    spec = found["spec"]
    assert len(spec["schedule"].split()) == 5
    assert spec["concurrencyPolicy"] == "Forbid"
    job = spec["jobTemplate"]["spec"]
    assert job["backoffLimit"] == 0
    pod = job["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["terminationGracePeriodSeconds"] >= 60
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounted) == {volume["name"] for volume in pod["volumes"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "/tmp" in mounted.values()


def test_the_cron_job_has_a_user_whom_java_knows() -> None:
    """Spark does not start without a home directory, whatever the image's /etc/passwd has."""
    pod = cron_job()["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (volume,) = (one for one in pod["volumes"] if one["name"] == "passwd")
    (container,) = pod["containers"]
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "passwd")
    assert mount["mountPath"] == "/etc/" + mount["subPath"] == "/etc/passwd"
    files = manifest("ConfigMap")
    assert volume["configMap"]["name"] == files["metadata"]["name"]
    entries = [line.split(":") for line in files["data"]["passwd"].splitlines()]
    assert {len(entry) for entry in entries} == {7}
    homes = {int(entry[2]): entry[5] for entry in entries}
    assert homes[pod["securityContext"]["runAsUser"]] == "/tmp", "the one directory that can be written"
    assert 0 in homes


def test_the_cron_job_has_memory_for_its_tasks() -> None:
    (container,) = cron_job()["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    options = parsed(container["args"][1:])
    limits = container["resources"]["limits"]
    cores = int(limits["cpu"])
    assert options["master"] == f"local[{cores}]"
    (java_gib,) = (int(one.removeprefix("spark.driver.memory=")[:-1]) for one in options["conf"])
    tasks_bytes = cores * (MergeOptions().task_bytes + BESIDE_TASK_BYTES)
    assert (java_gib << 30) + tasks_bytes <= int(limits["memory"].removesuffix("Gi")) << 30
