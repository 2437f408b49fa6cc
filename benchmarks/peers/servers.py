"""The proxies that are compared: a relay in C, one in Python, Kroxylicious, and this one's own."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path
from threading import Event

from benchmarks.raw_client import RawClient
from proxy.demo import servers
from proxy.demo.errors import StackError
from proxy.demo.jars import JarSet
from proxy.demo.process import Process
from proxy.demo.waiting import wait_until
from tests.support.java_tools import compile_java

HERE = Path(__file__).parent
KROXYLICIOUS = JarSet(HERE / "kroxylicious-0.12.0")
START_TIMEOUT_SECONDS = 60.0
COMPILE_TIMEOUT_SECONDS = 120
JVM = ("-XX:+UseG1GC",)
BY_NODE_ID = """
virtualClusters:
  - name: bench
    targetCluster:
      bootstrapServers: 127.0.0.1:{target}
    gateways:
      - name: plain
        portIdentifiesNode:
          bootstrapAddress: 127.0.0.1:{port}
          nodeIdRanges:
            - name: brokers
              start: 0
              end: 3
"""
"""Kroxylicious' settings without a filter: a port for the bootstrap, and one more for each node ID."""


def compile_c(name: str, directory: Path) -> Path:
    """Compile a program of this folder."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("no C compiler: install one (Debian: apt-get install gcc libc6-dev)")
    program = directory / name
    command = [compiler, "-O2", "-o", str(program), str(HERE / f"{name}.c")]
    subprocess.run(command, check=True, timeout=COMPILE_TIMEOUT_SECONDS)
    return program


def relay(directory: Path, port: int, target: int) -> Process:
    """Return the relay in C."""
    return Process("relay", [str(compile_c("relay", directory)), str(port), str(target)], directory / "relay.log")


def lean(directory: Path, port: int, target: int) -> Process:
    """Return the relay in Python."""
    command = [sys.executable, str(HERE / "lean.py"), str(port), str(target)]
    return Process("lean", command, directory / "lean.log")


def kroxylicious(directory: Path, port: int, target: int) -> Process:
    """Return Kroxylicious without a filter; its jars are there. It listens on all interfaces."""
    settings = directory / "kroxylicious.yaml"
    settings.write_text(BY_NODE_ID.format(port=port, target=target))
    compile_java([HERE / "Kroxylicious.java"], directory, KROXYLICIOUS.name)
    class_path = f"{servers.class_path(KROXYLICIOUS.name)}:{directory}"
    command = [servers.java(), *JVM, "-cp", class_path, "Kroxylicious", str(settings)]
    return Process("kroxylicious", command, directory / "kroxylicious.log")


def start(process: Process, port: int) -> dict[int, int]:
    """Start a proxy, and wait until brokers answer through it; return `brokers`."""
    process.start()

    def complaint() -> str:
        if not process.running:
            raise StackError(f"{process.name} ended: {process.log_tail()}")
        try:
            return "" if brokers(port) else "no broker"
        except (OSError, struct.error) as error:
            return str(error)

    wait_until(complaint, START_TIMEOUT_SECONDS, Event(), lambda last: f"{process.name}: {last}")
    return brokers(port)


def brokers(port: int) -> dict[int, int]:
    """Return the ports of the brokers by node ID, as the proxy at this port returns them."""
    client = RawClient(f"127.0.0.1:{port}")
    try:
        return {node_id: int(address.rpartition(":")[2]) for node_id, address in client.brokers().items()}
    finally:
        client.close()
