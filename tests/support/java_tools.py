"""Run Java tools of any Kafka version one after the other in one JVM, because starting a JVM takes most of a tool's
time."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from proxy.demo import kafka, servers
from proxy.demo.process import Process, bound

SOURCE = Path(__file__).parents[1] / "conformance" / "jvm" / "Tools.java"
TOOL_SOURCES = tuple(Path(__file__).with_name(f"{name}.java") for name in ("Assign", "JmxCounts", "ShareReader"))
"""The tests' own tools, by file name."""
EXTRA_JARS = "extra-4.3.1"
HEAP_MB = 256
TIMEOUT_SECONDS = 60
END_TIMEOUT_SECONDS = 30
COMPILE_TIMEOUT_SECONDS = 120

TOOLS = "org.apache.kafka.tools"


class Printed(NamedTuple):
    """Exit code and output of a tool."""

    exit_code: int
    out: str
    err: str


def compile_launcher(directory: Path) -> Path:
    """Compile `Tools.java`, and our own tools, into the directory."""
    compile_java([SOURCE, *TOOL_SOURCES], directory)
    return directory


def compile_java(sources: Sequence[Path], directory: Path, jars: str = "kafka") -> None:
    """Compile into the directory, with a set of jars. A Java runtime has no compiler, so the one from a jar is used."""
    # The compiler does not expand the wildcard of a class path.
    libraries = ":".join(map(str, sorted(Path(servers.class_path(jars)).parent.glob("*.jar"))))
    options = ["-source", "17", "-target", "17", "-nowarn", "-cp", libraries, "-d", str(directory)]
    compiler = ["-cp", servers.class_path(EXTRA_JARS), "org.eclipse.jdt.internal.compiler.batch.Main"]
    command = [servers.java(), *kafka.SMALL_JVM, *compiler, *options, *map(str, sources)]
    subprocess.run(command, check=True, timeout=COMPILE_TIMEOUT_SECONDS)


def java_command(classes: Path, main_class: str, *arguments: str) -> list[str]:
    """Return the command of a program compiled by `compile_java`, with Kafka's own classes; it logs to its output."""
    class_path = f"{servers.kafka_class_path()}:{classes}"
    return [*_java("ERROR", classes), *servers.shared_classes(), "-cp", class_path, main_class, *arguments]


def java_program(
    name: str,
    directory: Path,
    main_class: str,
    *arguments: str,
    jars: Sequence[str] = (EXTRA_JARS, "kafka"),
    options: Sequence[str] = (),
    end_timeout_seconds: float = END_TIMEOUT_SECONDS,
) -> Process:
    """Run a program such as Kafka Streams or Connect in its own JVM; its log goes into the directory.

    Classes that `compile_java` put into the directory are found too. `options` are JVM options.
    """
    class_path = ":".join([str(directory), *(servers.class_path(one) for one in jars)])
    command = [*_java("WARN", directory), *options, "-cp", class_path, main_class, *arguments]
    return Process(name, command, directory / f"{name}.log", stop_timeout_seconds=end_timeout_seconds)


def _java(log_level: str, temporary: Path) -> list[str]:
    configuration = Path(kafka.__file__).with_name("log4j2.xml")
    return [
        servers.java(),
        f"-Xmx{HEAP_MB}m",
        *kafka.SMALL_JVM,
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={temporary}",
        f"-Dlog4j2.configurationFile={configuration}",
        f"-Ddemo.log.level={log_level}",
    ]


class JavaTools:
    """One JVM. The context stops it when it ends."""

    def __init__(self, launcher: Path, jars: str = "kafka") -> None:
        """Use the `launcher` that `compile_launcher` built and the set of jars named `jars` in `.servers`."""
        class_path = f"{servers.class_path(jars)}:{launcher}"
        opened = ["--add-opens=java.base/java.lang=ALL-UNNAMED", "-Dlog4j.shutdownHookEnabled=false"]
        shared = servers.shared_classes() if jars == "kafka" else ()
        self._command = [*_java("ERROR", launcher), *shared, *opened, "-cp", class_path, SOURCE.stem]
        self._log = launcher / f"{jars}.log"

    def __enter__(self) -> Self:
        self._start()
        return self

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                bound(self._command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._process.communicate(timeout=END_TIMEOUT_SECONDS)  # the JVM ends at the end of its input
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.wait()

    def run(
        self,
        main_class: str,
        *arguments: str,
        stdin: str = "",
        until: str = "",
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Printed:
        """Run a tool to its end. A tool that takes too long ends the whole JVM and the test; the next tool gets a new
        JVM.

        A tool that does not end by itself is stopped, as if by a signal, once it has printed the text `until`.
        """
        if self._process.poll() is not None:
            self._start()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        overdue = threading.Timer(timeout_seconds, self._process.kill)
        overdue.start()
        try:
            self._process.stdin.write(" ".join(map(_encoded, (main_class, stdin, until, *arguments))) + "\n")
            self._process.stdin.flush()
            words = self._process.stdout.readline().split()
        except BaseException:  # an answer that still arrives must not be read as the next tool's
            self._process.kill()
            self._process.wait()
            raise
        finally:
            overdue.cancel()
        if not words:
            self._process.wait()
        assert words, f"{main_class} did not end in {timeout_seconds:g} s, or ended the JVM: {self._log.read_text()}"
        return Printed(int(words[0]), _decoded(words[1]), _decoded(words[2]))

    def check(self, main_class: str, *arguments: str, stdin: str = "", timeout_seconds: float = TIMEOUT_SECONDS) -> str:
        """Run a tool, require exit code 0, and return its standard output."""
        printed = self.run(main_class, *arguments, stdin=stdin, timeout_seconds=timeout_seconds)
        assert printed.exit_code == 0, f"{main_class} {arguments}: {printed.out}\n{printed.err}"
        return printed.out


def only(event: str, *fields: str) -> Callable[[str], str]:
    """Return a filter for verifiable tools: it keeps these fields of one kind of event, because others contain
    times."""

    def kept(printed: str) -> str:
        events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        return "\n".join(json.dumps([one.get(field) for field in fields]) for one in events if one["name"] == event)

    return kept


def _encoded(text: str) -> str:
    return "." + base64.b64encode(text.encode()).decode()


def _decoded(word: str) -> str:
    return base64.b64decode(word[1:]).decode()
