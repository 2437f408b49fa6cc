"""The checks for each block of the pages: how its commands are checked, which ones run, and why others do not.

A block without a row here fails the test: its author must name what keeps it true.
"""

from __future__ import annotations

OWN = {"diskless-proxy", "make"}
"""Programs whose commands are compared with the command line and the Makefile, each option of them."""

LOOKING = [
    "cat",
    "chmod",
    "chown",
    "df",
    "dig",
    "env",
    "false",
    "free",
    "grep",
    "head",
    "jq",
    "ls",
    "nc",
    "openssl",
    "pgrep",
    "ps",
    "sort",
    "ss",
    "sysctl",
    "tail",
    "tee",
    "test",
    "top",
    "true",
    "wc",
]
"""Programs that look at the reader's own machine."""

NOT_RUN = dict.fromkeys(LOOKING, "looks at the reader's own machine") | {
    "cd": "changes the folder",
    "cp": "writes into the system's folders",
    "curl": "needs the address of a proxy; what it asks for is tried by tests of the admin port",
    "echo": "writes into the system's folders",
    "export": "sets a variable",
    "git": "fetches the project",
    "install": "writes into the system's folders",
    "journalctl": "needs systemd",
    "kill": "ends a process of the reader's",
    "mkdir": "writes into the system's folders",
    "mvn": "the same pom is fetched by make setup",
    "pip": "installs the released package",
    "python": "finds a path of the released package",
    "python3": "makes a virtual environment",
    "spark-submit": "needs a cluster; tests/pipeline/test_cluster.py submits the same to one of its own",
    "redis-cli": "asks the reader's own Redis",
    "valkey-cli": "asks the reader's own Valkey",
    "aws": "needs an account",
    "systemctl": "needs systemd; tests/deploy looks at the units",
    "systemd-run": "needs systemd",
    "systemd-analyze": "needs systemd; tests/deploy runs it where it is there",
    "useradd": "needs root",
    "which": "finds a path",
    "docker": "needs an engine; tests/deploy has the file of the image and of compose checked",
    "helm": "needs a cluster; tests/deploy renders the chart",
    "kubectl": "needs a cluster; tests/deploy validates what is applied",
    "promtool": "tests/deploy runs it",
    "kafka-acls": "what it sets is set by tests/integration/security",
    "kafka-console-consumer": "tests/conformance/jvm runs it",
    "kafka-consumer-groups": "tests/conformance/jvm runs it",
    "kafka-delete-records": "tests/conformance/jvm runs it",
    "kafka-topics": "tests/conformance/jvm runs it",
    "kafka-transactions": "tests/conformance/jvm runs it",
    "connect-mirror-maker": "tests/conformance/jvm/test_mirror_maker.py runs it",
    "connect-standalone": "tests/docs/test_recipes.py runs it",
}
"""Reasons not to run a program's commands as they stand in a page."""

OTHER_YAML = {
    "deploy/helm/diskless-proxy/README.md": "the least values, as ci/small-values.yaml, which tests/deploy renders",
    "docs/deploy.md": "values of the chart, manifests and compose files, which tests/deploy has checked",
    "docs/sni.md": "values of the chart, which tests/deploy/test_helm_names.py renders",
    "docs/guides/eks-msk.md": "values of the chart, which tests/deploy has checked",
    "docs/guides/strimzi.md": "values of the chart, and resources that Strimzi's operators read",
    "docs/metrics.md": "configuration of Prometheus",
    "docs/alerts.md": "rules of Prometheus",
    "docs/operations/redis.md": "manifests",
}
"""Pages whose YAML may be for other programs, with these programs."""

EXECUTED = {
    ("README.md", 'make demo ARGS="--serve"'): "tests/integration/demo/test_demo_serve.py",
    ("README.md", "make hello"): "tests/integration/demo/test_demo_serve.py",
    ("docs/quickstart.md", 'make demo ARGS="--serve"'): "tests/integration/demo/test_demo_serve.py",
    ("docs/quickstart.md", "make hello"): "tests/integration/demo/test_demo_serve.py",
    ("docs/quickstart.md", "# .venv/bin/python"): "tests/docs/test_executed.py",
    (
        "docs/quickstart.md",
        ".venv/bin/diskless-proxy topics describe --config proxy.yaml hello",
    ): "tests/docs/test_executed.py",
    ("docs/clients/java.md", "# producer"): "tests/docs/test_recipes.py",
    ("docs/clients/java.md", "# consumer"): "tests/docs/test_recipes.py",
    ("docs/clients/librdkafka.md", "# producer"): "tests/docs/test_recipes.py",
    ("docs/clients/librdkafka.md", "# consumer"): "tests/docs/test_recipes.py",
    ("docs/clients/legacy.md", "client.id=app,diskless_rack_id=us-east-1a"): "tests/docs/test_recipes.py",
    (
        "docs/clients/streams.md",
        "bootstrap.servers=kafka-us-east-1a.example.com:9092",
    ): "tests/conformance/jvm/test_streams.py",
    ("docs/clients/connect.md", "bootstrap.servers=kafka-us-east-1a.example.com:9092"): "tests/docs/test_recipes.py",
    ("docs/clients/connect.md", "name=file-source"): "tests/docs/test_recipes.py",
    ("docs/clients/connect.md", "name=file-sink"): "tests/docs/test_recipes.py",
    (
        "docs/clients/flink.md",
        "bootstrap.servers=kafka-us-east-1a.example.com:9092,kafka-us-east-1b.example.com:9092",
    ): "tests/docs/test_recipes.py",
    ("docs/clients/spark.md", "kafka = {"): "tests/pipeline/test_spark_kafka.py",
    ("docs/clients/migration.md", "clusters=diskless,target"): "tests/conformance/jvm/test_mirror_maker.py",
    ("docs/clients/migration.md", "clusters=classic,target"): "tests/conformance/jvm/test_mirror_maker.py",
    ("docs/pipeline/spark-kafka.md", "kafka = {"): "tests/pipeline/test_spark_kafka.py",
}
"""Tests that run a block as it stands, or use its settings, by page and first line."""
