"""One adapter for each client."""

from __future__ import annotations

from tests.conformance.clients.aiokafka_client import Aiokafka
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.franz import FranzGo
from tests.conformance.clients.kafka_python import KafkaPython
from tests.conformance.clients.kcat import Kcat
from tests.conformance.model import Client

CLIENTS: tuple[Client, ...] = (
    Confluent(),
    Kcat(),
    Kcat(release="0.11.0"),
    FranzGo(),
    FranzGo(release="0.11.0"),
    Aiokafka(),
    KafkaPython(),
    KafkaPython(release="0.11.0"),
)
"""All clients. Those with a release behave like a client of that Kafka release, from the oldest whose Produce Kafka 4
serves."""
