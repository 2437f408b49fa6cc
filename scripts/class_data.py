"""Write Kafka's classes into one file, from which brokers start with less than half of the CPU time.

The JVM calls this class data sharing (JEP 350): it maps classes from the file in place of reading and verifying them in
their jars. It writes the file at the end of a process, here of a small broker. The file fits one build of Java and one
set of jars. With others the JVM ignores it.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from jars import FetchError, say

from proxy.demo import servers
from proxy.demo.kafka import METADATA_TIMEOUT_SECONDS, SMALL_JVM
from proxy.demo.ports import HOST, ReservedPorts
from proxy.demo.probe import ProbeFailed, known_brokers

TIMEOUT_SECONDS = 300
"""Seconds for each step; a busy machine takes ten times as long as an idle one."""
WAIT_SECONDS = 0.2


def share_classes() -> None:
    """Write the file unless that was tried with this Java and these jars. Brokers start without it, too."""
    archive = servers.shared_classes_file()
    stamp = archive.with_name("classes-made-from")
    made_from = f"{servers.java()}\n{_version()}\n{(archive.parent / 'made-from').read_text()}"
    if stamp.exists() and stamp.read_text() == made_from:
        return
    say("preparing the brokers' classes for fast starts")
    building = archive.with_suffix(".new")
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        try:
            _run_broker(Path(directory), building)
            building.replace(archive)
        except FetchError as error:
            say(f"{error}; brokers will start more slowly")
    stamp.write_text(made_from)


def _version() -> str:
    return subprocess.run([servers.java(), "-version"], capture_output=True, check=True, text=True).stderr


def _run_broker(directory: Path, archive: Path) -> None:
    """Start a broker that is its own controller, and end it, so that the JVM writes the archive."""
    settings, log = directory / "server.properties", directory / "log"
    reserved = ReservedPorts(None, 0)
    try:
        settings.write_text(_properties(directory, reserved.ports.broker(1), reserved.ports.controller))
        command = [servers.java(), "-Xmx256m", *SMALL_JVM, "-XX:-UsePerfData", f"-Djava.io.tmpdir={directory}"]
        class_path = ["-cp", servers.kafka_class_path()]
        tool = [*command, *class_path, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAA"]
        subprocess.run([*tool, "-c", str(settings)], check=True, capture_output=True, timeout=TIMEOUT_SECONDS)
        with log.open("wb") as output:
            broker = subprocess.Popen(
                [*command, f"-XX:ArchiveClassesAtExit={archive}", *class_path, "kafka.Kafka", str(settings)],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            _wait_until_started(broker, reserved.ports.broker(1), log)
            broker.terminate()
            broker.wait(TIMEOUT_SECONDS)
        finally:
            broker.kill()
            broker.wait()
    except (subprocess.SubprocessError, TimeoutError) as error:
        raise FetchError(f"the brokers' classes could not be prepared: {error}") from error
    finally:
        reserved.release()
    if not archive.exists():
        raise FetchError(f"the JVM wrote no {archive.name}: {log.read_text(errors='replace')[-500:]}")


def _properties(directory: Path, port: int, controller_port: int) -> str:
    return "\n".join(
        (
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@{HOST}:{controller_port}",
            f"listeners=PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
            "controller.listener.names=CONTROLLER",
            "offsets.topic.replication.factor=1",
            f"log.dirs={directory / 'data'}",
        )
    )


def _wait_until_started(broker: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not _answers(port):
        if broker.poll() is not None or time.monotonic() > deadline:
            raise TimeoutError(f"the broker did not start: {log.read_text(errors='replace')[-500:]}")
        time.sleep(WAIT_SECONDS)


def _answers(port: int) -> bool:
    try:
        return bool(known_brokers(HOST, port, METADATA_TIMEOUT_SECONDS))
    except ProbeFailed:
        return False
