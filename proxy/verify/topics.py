"""The topics of a run: existing or new ones, and which of them take transactions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from proxy.verify.options import Choice, VerifyError, VerifyOptions
from proxy.verify.shared import SILENT

ASK_SECONDS = 20.0
KNOWN_SECONDS = 60.0
POLL_SECONDS = 0.2
TRANSACTION_SECONDS = 60.0
MAX_REPLICAS = 3
DISKLESS_CONFIG = "diskless.enable"


@dataclass(slots=True)
class Topics:
    """The topics of a run."""

    partitions: dict[str, int]
    """Number of partitions by name."""
    created: list[str] = field(default_factory=list)
    transactional: tuple[str, ...] = ()
    """Topics that take transactions."""
    notes: list[str] = field(default_factory=list)


def prepare(options: VerifyOptions, run: str) -> Topics:
    """Find or create the topics, and wait until they have leaders. Raises VerifyError."""
    heard: list[KafkaError] = []
    try:
        admin = AdminClient(settings(options) | {"error_cb": heard.append})
    except KafkaException as error:
        raise VerifyError(f"librdkafka rejects the settings of --client-config: {error.args[0].str()}") from error
    try:
        metadata = admin.list_topics(timeout=ASK_SECONDS)
    except KafkaException as error:
        admin.poll(0)  # what the client has heard meanwhile
        raise VerifyError(_why_unreachable(options.bootstrap, error.args[0], heard)) from error
    topics = Topics({})
    try:
        _choose(topics, admin, options, run, len(metadata.brokers))
    except VerifyError:
        if topics.created:
            delete(options, topics.created)
        raise
    return topics


def _why_unreachable(bootstrap: str, error: KafkaError, heard: Sequence[KafkaError]) -> str:
    """Return why no metadata came. The client reports a rejected login and a failed handshake only on the side."""
    causes = {one.code(): one.str() for one in heard}
    if KafkaError._AUTHENTICATION in causes:
        return (
            f"the brokers of {bootstrap} reject the login ({causes[KafkaError._AUTHENTICATION]}); correct "
            "sasl.mechanism, sasl.username and sasl.password in the file of --client-config"
        )
    if KafkaError._SSL in causes:
        return (
            f"TLS to {bootstrap} fails ({causes[KafkaError._SSL]}); correct security.protocol and ssl.ca.location in "
            "the file of --client-config"
        )
    return (
        f"no broker of {bootstrap} answers ({error.name()}); check --bootstrap, and name TLS and SASL settings with "
        "--client-config"
    )


def _choose(topics: Topics, admin: AdminClient, options: VerifyOptions, run: str, brokers: int) -> None:
    if not options.topics:
        _create(topics, admin, options, run, brokers)
    topics.partitions = _wait_known(admin, options.topics or tuple(topics.created))
    _find_transactional(topics, options, run)


def delete(options: VerifyOptions, names: list[str]) -> None:
    """Delete topics; one that cannot be deleted stays."""
    for deleted in AdminClient(settings(options)).delete_topics(names, request_timeout=ASK_SECONDS).values():
        try:
            deleted.result(ASK_SECONDS)
        except (KafkaException, TimeoutError):
            continue


def settings(options: VerifyOptions, **librdkafka: Any) -> dict[str, Any]:
    """Return librdkafka's settings of a client that is not part of the load; `_` in names stands for a dot."""
    further = {name.replace("_", "."): value for name, value in librdkafka.items()}
    return {"bootstrap.servers": options.bootstrap, "logger": SILENT, **further, **options.client_settings}


def _create(topics: Topics, admin: AdminClient, options: VerifyOptions, run: str, brokers: int) -> None:
    kinds: Mapping[str, dict[str, str]] = {"classic": {}, "diskless": {DISKLESS_CONFIG: "true"}}
    for kind, config in kinds.items():
        if config and options.diskless is Choice.off:
            continue
        name = f"verify-{run}-{kind}"
        replicas = options.replication_factor or min(MAX_REPLICAS, max(1, brokers))
        new = NewTopic(name, options.partitions, replicas, config=config)
        try:
            _create_topic(admin, new)
        except (KafkaException, TimeoutError) as error:
            if config and options.diskless is Choice.auto and _code(error) == KafkaError.INVALID_CONFIG:
                topics.notes.append(f"without diskless topics: the cluster rejects the config {DISKLESS_CONFIG}")
                continue
            raise VerifyError(f"cannot create the topic {name}: {error}; or name existing ones: --topics") from error
        topics.created.append(name)


def _create_topic(admin: AdminClient, new: NewTopic) -> None:
    """Create a topic with a name that nobody else uses. After a timeout it may exist, or be created again."""
    deadline = time.monotonic() + ASK_SECONDS
    timed_out = False
    while True:
        try:
            admin.create_topics([new], request_timeout=ASK_SECONDS)[new.topic].result(ASK_SECONDS)
        except KafkaException as error:
            if timed_out and _code(error) == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            timed_out = _code(error) == KafkaError.REQUEST_TIMED_OUT
            if not timed_out or time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
        else:
            return


def _code(error: Exception) -> int | None:
    return error.args[0].code() if isinstance(error, KafkaException) else None


def _wait_known(admin: AdminClient, names: tuple[str, ...]) -> dict[str, int]:
    deadline = time.monotonic() + KNOWN_SECONDS
    while True:
        try:
            found = admin.list_topics(timeout=ASK_SECONDS).topics
        except KafkaException:
            found = {}
        ready = {
            name: len(found[name].partitions)
            for name in names
            if name in found
            and found[name].partitions
            and all(one.leader >= 0 for one in found[name].partitions.values())
        }
        if len(ready) == len(names):
            return ready
        if time.monotonic() > deadline:
            missing = ", ".join(name for name in names if name not in ready)
            raise VerifyError(f"these topics do not exist, or have partitions without a leader: {missing}")
        time.sleep(POLL_SECONDS)


def _find_transactional(topics: Topics, options: VerifyOptions, run: str) -> None:
    if options.transactions is Choice.off:
        return
    for topic in topics.partitions:
        reason = _why_no_transactions(options, topic, run)
        if reason is None:
            topics.transactional = (*topics.transactional, topic)
        elif options.transactions is Choice.on:
            raise VerifyError(f"{topic} takes no transactions: {reason}; leave --transactions on out")
        else:
            topics.notes.append(f"without transactions on {topic}, which rejects them: {reason}")


def _why_no_transactions(options: VerifyOptions, topic: str, run: str) -> str | None:
    """Try a transaction with one record, which is not part of the run. Return None if it was committed."""
    name = f"verify-{run}-try-{topic}"
    producer = Producer(settings(options, transactional_id=name))
    try:
        producer.init_transactions(TRANSACTION_SECONDS)
        producer.begin_transaction()
        producer.produce(topic, b"tried", partition=0)
        producer.flush(TRANSACTION_SECONDS)
        producer.commit_transaction(TRANSACTION_SECONDS)
    except KafkaException as raised:
        error = raised.args[0]
        if error.txn_requires_abort():
            try:
                producer.abort_transaction(TRANSACTION_SECONDS)
            except KafkaException:
                pass  # it expires
        return f"{error.name()}: {error.str()}"
    return None
