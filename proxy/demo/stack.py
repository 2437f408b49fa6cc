"""The stack: brokers in three racks, a Redis-compatible server, object storage, and a proxy per rack.

One piece of code for the demo, the tests and the benchmarks. Synchronous: the parts are processes, and every wait has
an end. Usable from any thread, by one thread at a time.

    with Stack(StackOptions()) as stack:
        producer = Producer({"bootstrap.servers": stack.bootstrap("rack-a")})
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any

from proxy.demo import s3
from proxy.demo.directories import DIRECTORIES, KEPT, remove
from proxy.demo.errors import StackCancelled, StackError
from proxy.demo.kafka import CONTROLLER, Kafka
from proxy.demo.ports import MAX_BROKERS, MAX_PROXIES, Ports, ReservedPorts
from proxy.demo.process import Process
from proxy.demo.proxies import RackProxy, merged
from proxy.demo.s3 import SeaweedFS
from proxy.demo.security import StackSecurity, grant_service
from proxy.demo.stack_options import DISKLESS_BY_NAME as DISKLESS_BY_NAME
from proxy.demo.stack_options import StackOptions as StackOptions
from proxy.demo.valkeys import store_of


class Stack:
    """A stack that starts on entering the context (or by `start`) and ends on leaving it (or by `stop`)."""

    def __init__(
        self,
        options: StackOptions | None = None,
        *,
        cancelled: Event | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Setting `cancelled` ends a start early with StackCancelled; `progress` is called with what is being waited
        for."""
        self.options = options or StackOptions()
        if not 1 <= len(self.options.racks) <= MAX_BROKERS or len(set(self.options.racks)) < len(self.options.racks):
            raise StackError(f"a stack has 1 to {MAX_BROKERS} different racks, not {', '.join(self.options.racks)}")
        if not 1 <= len(self.options.racks) * self.options.brokers_per_rack <= MAX_BROKERS:
            raise StackError(f"a stack has 1 to {MAX_BROKERS} brokers in all; choose fewer brokers_per_rack")
        if not 1 <= len(self.options.racks) * self.options.proxies_per_rack <= MAX_PROXIES:
            raise StackError(f"a stack has 1 to {MAX_PROXIES} proxies in all; choose fewer proxies_per_rack")
        self._cancelled = cancelled or Event()
        self._progress = progress
        self._laid_out = False
        self._keep: Sequence[str] = ()
        self._reserved: ReservedPorts | None = None
        self.s3: SeaweedFS | None = None
        self.proxies: dict[str, RackProxy] = {}
        """Proxies by name, which is the rack's for its first one; none of them runs with the option `proxies` off."""
        self.processes: dict[str, Process] = {}
        """Processes by name: controller, broker-1, …, redis, s3, proxy-rack-a, …; in the order of their start."""

    def __enter__(self) -> Stack:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until it is ready. Raises StackError; nothing runs then, and the logs stay."""
        try:
            self._lay_out()
            self._start_servers()
            if self.options.proxies:
                self._progress("proxies")
                self._start_proxies()
        except StackError as error:
            self._keep = () if isinstance(error, StackCancelled) else KEPT
            self.stop()
            raise
        except BaseException:
            self.stop()
            raise

    def _lay_out(self) -> None:
        options = self.options
        if options.directory is None:
            self.directory = Path(tempfile.mkdtemp(prefix="diskless-proxy-demo-"))
        else:
            self.directory = options.directory.resolve()
        self._laid_out = True
        of_rack = max(options.proxies_per_rack, options.brokers_per_rack)
        self._reserved = ReservedPorts(options.port_base, len(options.racks) * of_rack)
        ports = self._reserved.ports
        for name in DIRECTORIES:
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self.security = StackSecurity(self.directory, options.security)
        self.security.prepare()
        self.kafka = Kafka(
            self.directory,
            ports,
            options.racks * options.brokers_per_rack,
            options.broker_properties,
            options.broker_version,
            self.security if options.security != "plaintext" else None,
            jmx=options.broker_jmx,
            jvm=options.broker_jvm,
        )
        self.redis = store_of(options.redis, self.directory, ports)
        self.s3 = SeaweedFS(self.directory, ports.s3) if options.storage == "s3" else None
        self.storage_url = f"s3://{s3.BUCKET}/wal" if self.s3 else (self.directory / "wal").as_uri()
        names = [
            (rack, f"{rack}-{number}" if number > 1 else rack)
            for number in range(1, options.proxies_per_rack + 1)
            for rack in options.racks
        ]
        self.proxies = {
            name: RackProxy(
                self.directory,
                ports,
                index,
                rack,
                self._proxy_settings(rack),
                name=name,
                program=self.options.proxy_program,
            )
            for index, (rack, name) in enumerate(names)
        }
        servers = [*self.redis.processes, *([self.s3.process] if self.s3 else [])]
        servers += [self.kafka.controller, *self.kafka.brokers.values()]
        proxies = [proxy.process for proxy in self.proxies.values()] if options.proxies else []
        self.processes = {process.name: process for process in servers + proxies}

    def _proxy_settings(self, rack: str) -> dict[str, Any]:
        own_first = sorted(self.kafka.racks, key=lambda node: self.kafka.racks[node] != rack)
        storage = {"url": self.storage_url}
        if self.s3:
            storage |= {
                "endpoint_url": self.s3.endpoint_url,
                "region": s3.REGION,
                "access_key_id": s3.ACCESS_KEY_ID,
                "secret_access_key": s3.SECRET_ACCESS_KEY,
                "unsigned_payload": "always",  # the default over TLS; here the network is this machine's own
            }
        settings = {
            "brokers": {"bootstrap": [self.kafka.address(node) for node in own_first]},
            "redis": {"url": self.redis.url},
            "journal": self.kafka.journal_settings if self.options.journal else {"mode": "off"},
            "storage": storage,
            "default_diskless_topics": [DISKLESS_BY_NAME],
            "workers": self.options.workers,
        }
        return merged(merged(settings, self.security.proxy_settings()), self.options.overrides)

    def _start_servers(self) -> None:
        self.redis.prepare()
        for server in self.redis.processes:
            server.start()
        if self.s3:
            self.s3.prepare()
            self.s3.process.start()
        self._progress("storage of the Kafka cluster")
        self.kafka.prepare()
        self.kafka.controller.start()
        for broker in list(self.kafka.brokers.values())[: self.options.brokers_started]:
            broker.start()
        for proxy in self.proxies.values():
            proxy.prepare()
        self._progress(f"{self.redis.title}, S3 server" if self.s3 else self.redis.title)
        self._wait_ready([*(server.name for server in self.redis.processes), "s3"])
        self._progress("Kafka brokers")
        self.wait_brokers()
        if self.security.with_sasl:
            grant_service(self.security, self.direct_bootstrap)

    def _start_proxies(self) -> None:
        for proxy in self.proxies.values():
            proxy.process.start()
        self._wait_ready([proxy.process.name for proxy in self.proxies.values()])
        of_rack = self.options.proxies_per_rack * self.options.workers
        for proxy in self.proxies.values():
            # A client that learns of one more proxy moves some of its brokers there, and gives up what is under way.
            proxy.wait_acquainted(
                dict.fromkeys(self.options.racks, of_rack), self.options.start_timeout_seconds, self._cancelled
            )

    def stop(self) -> None:
        """End everything, the proxies first, and remove the directory if it was a temporary one. Repeatable."""
        stores = [server.name for server in self.redis.processes] if self.processes else []
        servers = [name for name in self.processes if name in (CONTROLLER, "s3", *stores)]
        brokers = [name for name in self.processes if name.startswith("broker-")]
        proxies = [name for name in self.processes if name not in servers + brokers]
        for names in (proxies, brokers, servers):
            for name in names:
                if self.options.kills_servers and names is not proxies:
                    self.processes[name].kill()
                else:
                    self.processes[name].terminate()
            for name in names:
                self.processes[name].wait_ended()
        if self.s3:
            self.s3.clean_up()
        if self._reserved:
            self._reserved.release()
        if self._laid_out and self.options.directory is None:
            remove(self.directory, self._keep)
        self._laid_out = False

    # Where to find what

    @property
    def ports(self) -> Ports:
        """Return the layout of ports. Raises StackError before the start."""
        if self._reserved is None:
            raise StackError("the stack has no ports before its start")
        return self._reserved.ports

    def bootstrap(self, rack: str) -> str:
        """`host:port` where clients of the rack bootstrap, at its proxies, separated by commas.

        By the name of one of a rack's further proxies: of this one alone.
        """
        self._proxy(rack)
        at = [proxy.bootstrap for proxy in self.proxies.values() if proxy.rack == rack]
        return ",".join(at) or self._proxy(rack).bootstrap

    @property
    def direct_bootstrap(self) -> str:
        """`host:port` of all brokers, past the proxies."""
        return ",".join(self.kafka.address(node) for node in self.kafka.brokers)

    def admin_url(self, rack: str) -> str:
        """Return the proxy's HTTP port, as `http://host:port`."""
        return self._proxy(rack).admin_url

    def config_path(self, rack: str) -> Path:
        """Return the settings file that the rack's proxy runs with."""
        return self._proxy(rack).config_path

    def log_directory(self, node_id: int) -> Path:
        """Return the directory of the broker's partition logs."""
        return self.directory / "data" / f"broker-{node_id}"

    def process(self, name: str) -> Process:
        """Return a part by its name, see `processes`. Raises StackError, naming those that exist."""
        if name not in self.processes:
            raise StackError(f"the stack has no {name}; its parts are {', '.join(self.processes) or 'not started'}")
        return self.processes[name]

    def pid(self, name: str) -> int:
        """Return the process ID of a part."""
        return self.process(name).pid

    def log_tail(self, name: str, lines: int = 50) -> str:
        """Return the last lines that a part wrote."""
        return self.process(name).log_tail(lines)

    def _proxy(self, rack: str) -> RackProxy:
        if rack not in self.proxies:
            raise StackError(f"the stack has no proxy {rack}; its proxies are {', '.join(self.proxies)}")
        return self.proxies[rack]

    # Faults

    def pause(self, name: str) -> None:
        """Let a part hang: its connections stay open, nothing is answered."""
        self.process(name).pause()

    def resume(self, name: str) -> None:
        """End a pause."""
        self.process(name).resume()

    def heal(self) -> None:
        """Resume and start again, and wait for, whatever a test has paused, stopped or killed."""
        ended = [name for name, process in self.processes.items() if not process.running]
        paused = [name for name, process in self.processes.items() if process.paused and name not in ended]
        for name in paused:
            self.resume(name)
        for name in ended:
            self.process(name).start()
        self._wait_ready(ended + paused)

    def _wait_ready(self, names: Sequence[str]) -> None:
        timeout = self.options.start_timeout_seconds
        if any(server.name in names for server in self.redis.processes):
            self.redis.wait_ready(timeout, self._cancelled)
        if self.s3 and "s3" in names:
            self.s3.wait_ready(timeout, self._cancelled)
        if any(name.startswith("broker-") or name == CONTROLLER for name in names):
            self.wait_brokers()
        for proxy in self.proxies.values():
            if proxy.process.name in names:
                proxy.wait_ready(timeout, self._cancelled)

    def stop_broker(self, node_id: int) -> None:
        """Controlled shutdown, to its end."""
        self._end(f"broker-{node_id}")

    def kill_broker(self, node_id: int) -> None:
        """SIGKILL."""
        self.process(f"broker-{node_id}").kill()

    def start_broker(self, node_id: int, *, wait: bool = True) -> None:
        """Start it again; with `wait`, until it is a member of the cluster. Raises StackError when that fails."""
        self.process(f"broker-{node_id}").start()
        if wait:
            self.wait_brokers(node_id)

    def wait_brokers(self, *node_ids: int) -> None:
        """Wait until these brokers (all that run, where none is named) know of all that run. Raises StackError."""
        running = [node for node, broker in self.kafka.brokers.items() if broker.running and not broker.paused]
        self.kafka.wait_ready(list(node_ids) or running, self.options.start_timeout_seconds, self._cancelled)

    def terminate_proxy(self, rack: str) -> int | None:
        """SIGTERM, and wait until it has drained; its exit code."""
        return self._end(self._proxy(rack).process.name)

    def kill_proxy(self, rack: str) -> None:
        """SIGKILL."""
        self._proxy(rack).process.kill()

    def start_proxy(self, rack: str, *, wait: bool = True) -> None:
        """Start it again; with `wait`, until it is ready. Raises StackError when that fails."""
        self._start(self._proxy(rack).process.name, wait)

    def configure_proxy(self, rack: str, overrides: Mapping[str, Any]) -> None:
        """Put settings over those in the proxy's file; it obeys them from its next start on."""
        self._proxy(rack).configure(overrides)

    def stop_redis(self) -> None:
        """SIGTERM, to its end."""
        self._end("redis")

    def kill_redis(self) -> None:
        """SIGKILL."""
        self.process("redis").kill()

    def start_redis(self, *, wait: bool = True) -> None:
        """Start it again on the data it has on disk; with `wait`, until it answers."""
        self._start("redis", wait)

    def _start(self, name: str, wait: bool) -> None:
        self.process(name).start()
        if wait:
            self._wait_ready([name])

    def _end(self, name: str) -> int | None:
        process = self.process(name)
        process.terminate()
        return process.wait_ended()

    # Kafka's own tools

    def java_command(self, main_class: str, *arguments: str) -> list[str]:
        """Return the command of a tool such as `org.apache.kafka.tools.TopicCommand`, for a caller that runs it
        itself."""
        return self.kafka.tool_command(main_class, *arguments)

    def java(
        self, main_class: str, *arguments: str, stdin: str | None = None, timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool to its end (`timeout` in seconds). Raises subprocess.TimeoutExpired; the tool is killed then."""
        return self.kafka.run_tool(main_class, *arguments, stdin=stdin, timeout_seconds=timeout)
