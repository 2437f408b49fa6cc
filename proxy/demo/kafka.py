"""Unmodified Kafka brokers in KRaft mode: one controller, and one or more brokers per rack.

The controller is a process of its own, so that any broker can be stopped or killed without the cluster losing its head.
"""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

from proxy.demo import servers
from proxy.demo.errors import StackError
from proxy.demo.ports import HOST, Ports
from proxy.demo.probe import ProbeFailed, known_brokers
from proxy.demo.process import Process, bound
from proxy.demo.security import StackSecurity
from proxy.demo.waiting import wait_until

CONTROLLER_NODE_ID = 100
CONTROLLER = "controller"
BROKER_HEAP_MB = 256
CONTROLLER_HEAP_MB = 128
TOOL_HEAP_MB = 256
BROKER_STOP_TIMEOUT_SECONDS = 20.0
"""A controlled shutdown moves leaders away first."""
METADATA_TIMEOUT_SECONDS = 2.0
FORMAT_TIMEOUT_SECONDS = 60.0

BROKER_JVM = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:MetaspaceSize=96m",
    "-XX:+ExitOnOutOfMemoryError",
)
SMALL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

SHARED_PROPERTIES = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
    # Else an idle controller writes a record twice a second, which all brokers fetch and apply.
    "metadata.max.idle.interval.ms": "0",
}
BROKER_PROPERTIES = {
    "inter.broker.listener.name": "PLAINTEXT",
    "group.initial.rebalance.delay.ms": "0",
    # Kafka's 50 partitions of each of its own topics take seconds to create on a small machine.
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    # The default of 128 MB is half of the heap.
    "log.cleaner.dedupe.buffer.size": "8388608",
}


class Kafka:
    """The cluster: its files, its processes, its readiness, and Kafka's command-line tools."""

    def __init__(
        self,
        directory: Path,
        ports: Ports,
        racks: Sequence[str],
        properties: Mapping[str, str],
        version: str = "",
        security: StackSecurity | None = None,
        *,
        jmx: bool = False,
        jvm: Sequence[str] = (),
    ) -> None:
        """Put `properties` over those of every broker; `version` is the newest version of the brokers if empty.

        With `jmx` every broker offers its metrics at `Ports.broker_jmx`.
        """
        self._security = security
        self._directory = directory
        self._ports = ports
        self._class_path = servers.kafka_class_path()
        self._servers_class_path = servers.class_path(f"broker-{version}") if version else self._class_path
        self._java = servers.java()
        self._overrides = dict(properties)
        self.racks = dict(enumerate(racks, start=1))
        self.controller = self._server(CONTROLLER, CONTROLLER_HEAP_MB, SMALL_JVM)
        flags = {node: (*BROKER_JVM, *jvm, *(_jmx_flags(ports.broker_jmx(node)) if jmx else ())) for node in self.racks}
        self.brokers = {node: self._server(f"broker-{node}", BROKER_HEAP_MB, flags[node]) for node in self.racks}

    def address(self, node_id: int) -> str:
        """`host:port` of a broker."""
        return f"{HOST}:{self._ports.broker(node_id)}"

    def prepare(self) -> None:
        """Write the settings, and format the storage where it is new. Raises StackError where that fails."""
        self._write_properties(CONTROLLER, self._controller_properties())
        for node in self.racks:
            self._write_properties(f"broker-{node}", self._broker_properties(node))
        formatted = self._data(CONTROLLER) / "meta.properties"
        if not formatted.exists():
            cluster_id = _random_id()
            # Only the controller's storage holds more than its identity: the features that the cluster starts with.
            self._format_controller(cluster_id)
        else:
            cluster_id = dict(_properties(formatted))["cluster.id"]
        for node in self.racks:
            identity = self._data(f"broker-{node}") / "meta.properties"
            if not identity.exists():
                identity.parent.mkdir(parents=True, exist_ok=True)
                identity.write_text(
                    f"version=1\ncluster.id={cluster_id}\nnode.id={node}\ndirectory.id={_random_id()}\n"
                )

    def wait_ready(self, node_ids: Sequence[int], timeout_seconds: float, cancelled: Event) -> None:
        """Wait until each of these brokers knows all running brokers. Raises StackError when time is up."""
        for node in node_ids:
            wait_until(
                lambda node=node: self._complaint(node),  # type: ignore[misc]
                timeout_seconds,
                cancelled,
                lambda complaint, node=node: self._explain(node, complaint, timeout_seconds),  # type: ignore[misc]
            )

    def _complaint(self, node_id: int) -> str:
        for process in (self.controller, self.brokers[node_id]):
            if not process.running:
                raise StackError(f"{process.name} ended (exit code {process.exit_code}); {_last_lines(process)}")
        expected = {node for node, broker in self.brokers.items() if broker.running and not broker.paused}
        try:
            known = known_brokers(
                HOST,
                self._ports.broker(node_id),
                METADATA_TIMEOUT_SECONDS,
                self._security.connect if self._security else None,
            )
        except ProbeFailed as error:
            return f"it does not answer a Metadata request ({error})"
        missing = ", ".join(str(node) for node in sorted(expected - known.keys()))
        return f"it does not know of broker {missing} yet" if missing else ""

    def _explain(self, node_id: int, complaint: str, timeout_seconds: float) -> str:
        process = self.brokers[node_id]
        return f"{process.name} is not ready after {timeout_seconds:g} s: {complaint}; {_last_lines(process)}"

    def tool_command(self, main_class: str, *arguments: str) -> list[str]:
        """Return the command that runs one of Kafka's tools, for example `org.apache.kafka.tools.TopicCommand`."""
        return self._java_command(self._class_path, TOOL_HEAP_MB, SMALL_JVM, "ERROR", main_class, *arguments)

    def run_tool(
        self, main_class: str, *arguments: str, stdin: str | None = None, timeout_seconds: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's tools to its end. Raises subprocess.TimeoutExpired (the tool is killed then)."""
        return _run(self.tool_command(main_class, *arguments), stdin or "", timeout_seconds)

    def _format_controller(self, cluster_id: str) -> None:
        settings = self._properties_path(CONTROLLER)
        arguments = ("format", f"--cluster-id={cluster_id}", "--config", str(settings))  # an ID may begin with a dash
        users = self._security.format_arguments() if self._security else []
        tool = (self._servers_class_path, TOOL_HEAP_MB, SMALL_JVM, "ERROR", "kafka.tools.StorageTool")
        done = _run(self._java_command(*tool, *arguments, *users), "", FORMAT_TIMEOUT_SECONDS)
        if done.returncode:
            raise StackError(f"the controller's storage can't be formatted: {done.stderr.strip() or done.stdout}")

    def _server(self, name: str, heap_mb: int, flags: Sequence[str]) -> Process:
        server = (self._servers_class_path, heap_mb, flags, "INFO", "kafka.Kafka")
        command = self._java_command(*server, str(self._properties_path(name)))
        log = self._directory / "logs" / f"{name}.log"
        return Process(name, command, log, stop_timeout_seconds=BROKER_STOP_TIMEOUT_SECONDS)

    def _java_command(
        self, class_path: str, heap_mb: int, flags: Sequence[str], log_level: str, main_class: str, *arguments: str
    ) -> list[str]:
        return [
            self._java,
            f"-Xmx{heap_mb}m",
            *flags,
            "-Xshare:auto",
            *(servers.shared_classes() if class_path == self._class_path else ()),
            # What the JVM and native codecs leave in the system's temporary directory when they are killed.
            "-XX:-UsePerfData",
            f"-Djava.io.tmpdir={self._directory / 'tmp'}",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.xml')}",
            f"-Ddemo.log.level={log_level}",
            "-cp",
            class_path,
            main_class,
            *arguments,
        ]

    def _properties_path(self, name: str) -> Path:
        return self._directory / "config" / f"{name}.properties"

    def _data(self, name: str) -> Path:
        return self._directory / "data" / name

    def _write_properties(self, name: str, properties: Mapping[str, str]) -> None:
        lines = (f"{key}={value}\n" for key, value in properties.items())
        self._properties_path(name).write_text("".join(lines))

    def _controller_properties(self) -> dict[str, str]:
        return SHARED_PROPERTIES | {
            "process.roles": "controller",
            "node.id": str(CONTROLLER_NODE_ID),
            "controller.quorum.voters": self._voters,
            "listeners": f"CONTROLLER://{HOST}:{self._ports.controller}",
            "log.dirs": str(self._data(CONTROLLER)),
            **self._topic_defaults,
            **(self._security.controller_properties() if self._security else {}),
        }

    def _broker_properties(self, node_id: int) -> dict[str, str]:
        listener = f"PLAINTEXT://{self.address(node_id)}"
        return {
            **SHARED_PROPERTIES,
            **BROKER_PROPERTIES,
            **self._topic_defaults,
            "process.roles": "broker",
            "node.id": str(node_id),
            "broker.rack": self.racks[node_id],
            "controller.quorum.voters": self._voters,
            "listeners": listener,
            "advertised.listeners": listener,
            "log.dirs": str(self._data(f"broker-{node_id}")),
            **(self._security.broker_properties(self.address(node_id)) if self._security else {}),
            **self._overrides,
        }

    @property
    def _voters(self) -> str:
        return f"{CONTROLLER_NODE_ID}@{HOST}:{self._ports.controller}"

    @property
    def journal_settings(self) -> dict[str, Any]:
        """Return the settings of a journal on these brokers."""
        brokers = len(self.racks)
        return {"replication_factor": min(3, brokers), "min_insync_replicas": min(2, brokers)}

    @property
    def _topic_defaults(self) -> dict[str, str]:
        """Return the defaults of topics. The controller resolves defaults too, so it gets the same ones."""
        replicas = str(min(3, len(self.racks)))
        in_sync = str(min(2, len(self.racks)))
        names = ("default", "offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        return {
            **{f"{name}.replication.factor": replicas for name in names},
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.min.isr": in_sync,
            "min.insync.replicas": in_sync,
        }


def _run(command: Sequence[str], stdin: str, timeout_seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        bound(command), input=stdin, capture_output=True, text=True, timeout=timeout_seconds, check=False
    )


def _jmx_flags(port: int) -> tuple[str, ...]:
    names = {"port": port, "rmi.port": port, "host": HOST, "authenticate": "false", "ssl": "false"}
    settings = (f"-Dcom.sun.management.jmxremote.{name}={value}" for name, value in names.items())
    return (*settings, f"-Djava.rmi.server.hostname={HOST}")


def _random_id() -> str:
    """Return a random UUID as Kafka writes one: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def _properties(path: Path) -> list[tuple[str, str]]:
    lines = (line.partition("=") for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return [(key, value) for key, _, value in lines]


def _last_lines(process: Process) -> str:
    return f"the last lines of {process.log}:\n{process.log_tail()}"
