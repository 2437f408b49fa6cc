"""The recipes of docs/clients, each run with its client and the settings in its page."""

from __future__ import annotations

import ast
import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from proxy.demo import servers
from proxy.demo.stack import Stack
from tests.conformance.clients.programs import run
from tests.docs.blocks import ROOT
from tests.docs.recipes import block, for_stack, java_source, recipe, written
from tests.support.confluent import produce, read, take
from tests.support.java_tools import TOOLS, JavaTools, compile_java, java_program
from tests.support.metrics import bytes_stay_in
from tests.support.records import Sample, samples
from tests.support.spark_kafka import kafka_options
from tests.support.topics import CLASSIC, DISKLESS, KINDS, new_topic

pytestmark = pytest.mark.timeout(300)

COUNT = 30
RACK, OTHER = "rack-a", "rack-b"
"""Rack of the clients according to their hint, and rack of the proxy that they contact first."""
DISKLESS_ONLY = (DISKLESS,)
WAIT_SECONDS = 90.0
CONNECT = "org.apache.kafka.connect.cli.ConnectStandalone"
RETRIES = "2147483647"
"""Default of the client; the tool itself would give up at the first error."""
FLINK_JARS = "flink-2.1.1"
OPENED = tuple(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "util"))
"""JVM options of Flink's own configuration."""
LINES = [f"line {number}" for number in range(COUNT)]


def test_java(stack: Stack, tools: JavaTools, tmp_path: Path) -> None:
    topic = new_topic(stack, "recipe-java", DISKLESS)
    page, shared = "docs/clients/java.md", ["--bootstrap-server", stack.bootstrap(OTHER), "--topic", topic]
    with bytes_stay_in(stack, RACK, DISKLESS_ONLY, "produce"):
        config = written(tmp_path / "producer.properties", recipe(stack, page, "# producer", retries=RETRIES))
        printed = tools.check(
            f"{TOOLS}.VerifiableProducer", *shared, "--max-messages", str(COUNT), "--command-config", config
        )
    assert printed.count("producer_send_success") == COUNT
    with bytes_stay_in(stack, RACK, DISKLESS_ONLY, "fetch"):
        config = written(tmp_path / "consumer.properties", recipe(stack, page, "# consumer"))
        printed = tools.check(
            f"{TOOLS}.consumer.ConsoleConsumer", *shared, "--from-beginning", "--max-messages", str(COUNT),
            "--command-config", config,
        )  # fmt: skip
    assert sorted(map(int, printed.split())) == list(range(COUNT))


def test_librdkafka(stack: Stack) -> None:
    topic = new_topic(stack, "recipe-librdkafka", DISKLESS)
    page, there = "docs/clients/librdkafka.md", {"bootstrap_servers": stack.bootstrap(OTHER)}
    settings = recipe(stack, page, "# producer", **there)
    bootstrap = settings.pop("bootstrap.servers")
    with bytes_stay_in(stack, RACK, DISKLESS_ONLY, "produce"):
        produce(bootstrap, topic, samples(COUNT, "recipe"), **underscored(settings))
    consumer = Consumer(recipe(stack, page, "# consumer", group_id=f"{topic}-readers", **there))
    try:
        consumer.subscribe([topic])
        with bytes_stay_in(stack, RACK, DISKLESS_ONLY, "fetch"):
            assert [message.offset() for message in take(consumer, COUNT)] == list(range(COUNT))
    finally:
        consumer.close()


def underscored(settings: dict[str, str]) -> dict[str, str]:
    return {name.replace(".", "_"): value for name, value in settings.items()}


def test_go(stack: Stack) -> None:
    """Use the tests' program, which takes the options of the recipe as flags."""
    text = block("docs/clients/go.md", "go").text
    program = "".join(path.read_text() for path in (ROOT / "tests" / "conformance" / "go").glob("*.go"))
    named = set(re.findall(r"kgo\.[A-Z]\w+", text))
    assert {"kgo.ClientID", "kgo.SeedBrokers"} <= named
    assert all(f"{option}(" in program for option in named)
    (client_id,) = re.findall(r'kgo\.ClientID\("([^"]+)"\)', text)
    topic = new_topic(stack, "recipe-go", DISKLESS)
    shared = ["-bootstrap", stack.bootstrap(OTHER), "-client-id", for_stack(stack, client_id), "-topic", topic]
    line = '{"partition": 0, "key": null, "value": "AA==", "headers": [], "timestamp": 1}\n'
    with bytes_stay_in(stack, RACK, DISKLESS_ONLY, "produce"):
        done = run([servers.kafka_go_client(), "produce", *shared], 3 * line.encode())
    assert done.stdout.count(b'"acked"') == 3, done.stderr
    with bytes_stay_in(stack, RACK, DISKLESS_ONLY, "fetch"):
        done = run([servers.kafka_go_client(), "consume", *shared, "-group", topic, "-count", "3"], b"")
    assert done.stdout.count(b'"record"') == 3, done.stderr


def test_a_client_of_2017_by_its_client_id(stack: Stack, launcher: Path, tmp_path: Path) -> None:
    topic = new_topic(stack, "recipe-legacy", DISKLESS)
    settings = recipe(stack, "docs/clients/legacy.md")
    assert list(settings) == ["client.id"]
    shared = ["--broker-list", stack.bootstrap(OTHER), "--topic", topic, "--max-messages", str(COUNT)]
    with JavaTools(launcher, "client-0.11.0.3") as old, bytes_stay_in(stack, RACK, DISKLESS_ONLY, "produce"):
        config = written(tmp_path / "old.properties", settings)
        printed = old.check(f"{TOOLS}.VerifiableProducer", *shared, "--acks", "-1", "--producer.config", config)
    assert printed.count("producer_send_success") == COUNT


def test_connect(stack: Stack, tmp_path: Path) -> None:
    """Copy from a file into a diskless topic, and from the topic into a file, in one worker."""
    page, topic = "docs/clients/connect.md", new_topic(stack, "recipe-connect", DISKLESS)
    source, sink = tmp_path / "input.txt", tmp_path / "output.txt"
    source.write_text("".join(f"{line}\n" for line in LINES))
    worker = recipe(
        stack, page, "bootstrap.servers",
        bootstrap_servers=stack.bootstrap(OTHER), listeners="http://127.0.0.1:0",
        offset_storage_file_filename=str(tmp_path / "offsets"), plugin_discovery="only_scan",
    )  # fmt: skip
    files = [
        written(tmp_path / "worker.properties", worker),
        written(tmp_path / "source.properties", recipe(stack, page, "name=file-source", file=str(source), topic=topic)),
        written(tmp_path / "sink.properties", recipe(stack, page, "name=file-sink", file=str(sink), topics=topic)),
    ]
    program = java_program("connect", tmp_path, CONNECT, *files)
    with bytes_stay_in(stack, RACK, DISKLESS_ONLY, "produce"), bytes_stay_in(stack, RACK, DISKLESS_ONLY, "fetch"):
        program.start()
        try:
            deadline = time.monotonic() + WAIT_SECONDS
            while not sink.exists() or len(sink.read_text().splitlines()) < COUNT:
                assert program.running, program.log_tail()
                assert time.monotonic() < deadline, program.log_tail()
                time.sleep(0.2)
        finally:
            program.terminate()
            program.wait_ended()
    assert sink.read_text().splitlines() == LINES


def test_flink(stack: Stack, tmp_path: Path) -> None:
    """Run in a cluster of one process, from each kind of topic to the other."""
    sources = {kind: new_topic(stack, "recipe-flink", kind) for kind in KINDS}
    sinks = {CLASSIC: new_topic(stack, "recipe-flunk", DISKLESS), DISKLESS: new_topic(stack, "recipe-flunk", CLASSIC)}
    now_ms = int(time.time() * 1000)
    sent = [Sample(None, line.encode(), (), now_ms) for line in LINES]
    for topic in sources.values():
        produce(stack.bootstrap(RACK), topic, sent)
    compile_java([java_source("FlinkCopy")], tmp_path, FLINK_JARS)
    settings = recipe(stack, "docs/clients/flink.md", bootstrap_servers=stack.bootstrap(OTHER))
    config = written(tmp_path / "flink.properties", settings)
    pairs = [topic for kind in KINDS for topic in (sources[kind], sinks[kind])]
    program = java_program(
        "flink", tmp_path, "FlinkCopy", config, *pairs,
        jars=(FLINK_JARS,), options=OPENED, end_timeout_seconds=WAIT_SECONDS,
    )  # fmt: skip
    with bytes_stay_in(stack, RACK, DISKLESS_ONLY, "produce"), bytes_stay_in(stack, RACK, KINDS, "fetch"):
        program.start()
        assert program.wait_ended() == 0, program.log_tail()
    for topic in sinks.values():
        records = read(stack.bootstrap(RACK), topic)
        assert sorted((record.value or b"").decode() for record in records) == sorted(LINES)


def test_the_program_of_flink_is_that_of_the_page() -> None:
    """The program has every call of the page's block, except for the names of topics and of the group."""
    calls = re.findall(r"(?:\.\w+|\w+)\((?=[^\n]*)", block("docs/clients/flink.md", "java").text)
    program = java_source("FlinkCopy").read_text()
    assert len(calls) > 10
    assert all(call in program for call in calls)


@pytest.mark.parametrize("page", ["docs/clients/spark.md", "docs/pipeline/spark-kafka.md"])
def test_the_options_of_spark_are_those_of_its_tests(page: str) -> None:
    statement = ast.parse(block(page, "python", "kafka = {").text).body[0]
    assert isinstance(statement, ast.Assign)
    hosts = [f"kafka-us-east-1{letter}.example.com:9092" for letter in "ab"]
    assert ast.literal_eval(statement.value) == kafka_options(hosts, "us-east-1a")
