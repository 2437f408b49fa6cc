"""Metadata requests that may create topics at the brokers, and requests that may not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from kio.schema.errors import ErrorCode

from proxy.brokers.broker_defaults import DefaultsRefused
from proxy.creation import auto_creation as module
from proxy.creation import on_demand as on_demand_module
from proxy.creation.auto_creation import FIRST_FLAG_VERSION, AutoCreation, without_creation
from proxy.creation.on_demand import OnDemand
from proxy.wire.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    build_metadata_request,
    encode_metadata_request,
    parse_metadata_request,
)
from proxy.wire.steps import at_once
from tests.support.questions import filled
from tests.unit.creation.made import auto_creation_of
from tests.unit.wire.trees import decode, encode, response_type

REMEMBERED = ("num.partitions", "default.replication.factor")
STATES = {"live": "live", "reserved": "reserved", "deleting": "deleting"}


def creation(
    *,
    patterns: tuple[str, ...] = (r"diskless\..*",),
    registry: bool = True,
    under_replicated: bool = True,
    live: int = 3,
    replicas: int = 3,
    **parts: Any,
) -> AutoCreation:
    entries = {name: SimpleNamespace(state=state) for name, state in STATES.items()} if registry else {}
    return auto_creation_of(
        SimpleNamespace(default_diskless_topics=patterns),
        topics=SimpleNamespace(all=lambda: tuple(entries.values()), find=entries.get),
        under_replicated=SimpleNamespace(enabled=under_replicated),
        cluster=SimpleNamespace(view=SimpleNamespace(brokers=dict.fromkeys(range(live)))),
        topic_defaults=SimpleNamespace(replication_factor=replicas),
        **parts,
    )


def all_known(request: MetadataRequest, **world: Any) -> bool:
    return at_once(creation(**world).is_all_known(request))


def asked(names: list[str] | None, version: int = 12, *, creates: bool = True, **world: Any) -> MetadataRequest | None:
    body = build_metadata_request(version, names, allow_auto_topic_creation=creates)
    return at_once(creation(**world).creating_request(body, version))


@pytest.mark.parametrize("version", range(14))
def test_requests_that_can_make_no_diskless_topic_are_left_alone(version: int) -> None:
    assert asked(["classic", "other"], version) is None
    assert asked(None, version) is None
    assert asked(["diskless.a", "live"], version, patterns=(), registry=False) is None
    if version >= FIRST_FLAG_VERSION:
        assert asked(["diskless.a", "live"], version, creates=False) is None
    assert at_once(creation().creating_request(b"\x7f", version)) is None


@pytest.mark.parametrize("version", range(15))
@pytest.mark.parametrize("name", ["diskless.a", *STATES])
def test_names_that_are_diskless_or_to_be_are_not_left_to_the_brokers(version: int, name: str) -> None:
    request = asked(["classic", name], version)
    assert request is not None
    known = asked([name], version)
    assert known is not None
    assert all_known(known) == (name == "live")
    assert not all_known(request)
    sent = parse_metadata_request(without_creation(request), min(max(version, 4), 13))
    assert not sent.allow_auto_topic_creation
    assert [topic.name for topic in sent.topics or ()] == ["classic", name]


def test_the_rest_of_the_request_is_still_sent() -> None:
    whole = MetadataRequest(
        10, [MetadataRequestTopic("live", tagged=b"\x01\x09\x01x")], True, True, True, tagged=b"\x01\x08\x01y"
    )
    request = at_once(creation().creating_request(encode_metadata_request(whole), 10))
    assert request is not None
    sent = parse_metadata_request(without_creation(request), 10)
    assert sent == whole._replace(allow_auto_topic_creation=False)


def test_kafkas_internal_topics_are_the_brokers() -> None:
    assert asked(["__consumer_offsets"], patterns=(".*",), registry=False) is None


@pytest.mark.parametrize("version", range(15))
def test_while_brokers_are_missing_the_proxy_creates_all_but_internal_topics(version: int) -> None:
    world: dict[str, Any] = {"patterns": (), "registry": False}
    short = asked(["a"], version, live=2, **world)
    assert short is not None
    assert not all_known(short, live=2, **world)
    assert asked(list(module._INTERNAL), version, live=2, **world) is None
    assert asked(["a"], version, live=3, **world) is None
    assert asked(["a"], version, live=2, under_replicated=False, **world) is None
    assert asked(["a"], version, live=2, replicas=0, **world) is None
    assert asked(["a"], version, live=0, **world) is None


class Brokers:
    """A client's connection to brokers that create topics or not, with a proxy that creates diskless ones."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, create: bool | None, refuse: bool = False, **world: Any
    ) -> None:
        self.classic: set[str] = set()
        self.diskless: set[str] = set()
        self._refuse = refuse
        self.error = ErrorCode.none
        """Result of creations that are allowed."""
        self.tried: list[tuple[list[str], int, int]] = []
        """Names, partitions and replicas."""
        self.described = 0
        self.now_s = 0.0
        on_demand = OnDemand(lambda: self.now_s)
        self.creation = creation(creator=self, on_demand=on_demand, **world)
        self.defaults: dict[str, str | None] = {"num.partitions": "4", "default.replication.factor": "3"}

        async def configs(cluster: object, names: tuple[str, ...]) -> dict[str, str | None]:
            if create is None:
                raise DefaultsRefused("not allowed")
            self.described += 1
            assert names == ("auto.create.topics.enable", *REMEMBERED)
            return {"auto.create.topics.enable": str(create).lower()} | self.defaults

        monkeypatch.setattr(module, "broker_configs", configs)
        self._creates = bool(create)

    async def create_by_name(
        self, connection: object, request: object, names: list[str], *, partitions: int, replication_factor: int
    ) -> dict[str, Any]:
        self.tried.append((names, partitions, replication_factor))
        await asyncio.sleep(0)
        error = ErrorCode.topic_authorization_failed if self._refuse else self.error
        if not error:
            self.diskless |= set(names)
        return {name: SimpleNamespace(error_code=error, error_message=None) for name in names}

    async def ask(self, request: object, api_key: int, version: int, body: bytes) -> memoryview:
        asked = parse_metadata_request(body, version)
        names = [topic.name or "" for topic in asked.topics or ()]
        if asked.allow_auto_topic_creation and self._creates:
            self.classic |= set(names)
        topics = [{"name": name, "error_code": 0 if name in self.classic | self.diskless else 3} for name in names]
        entity = response_type(api_key, version)
        return memoryview(encode(entity, filled(entity, {"topics": topics})))

    async def answer(self, version: int, *names: str) -> dict[str, int]:
        body = build_metadata_request(version, names, allow_auto_topic_creation=True)
        request = at_once(self.creation.creating_request(body, version))
        assert request is not None
        filled_with: list[Any] = []
        slot: Any = SimpleNamespace(fill=filled_with.extend)
        this: Any = self
        await self.creation.answer(this, this, slot, request, lambda answered: [answered])
        answer = decode(response_type(3, min(version, 13)), b"".join(filled_with))
        return {topic["name"]: topic["error_code"] for topic in answer["topics"]}


@pytest.mark.parametrize("version", range(15))
async def test_each_name_is_created_by_whom_it_is_to_be(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    brokers = Brokers(monkeypatch, create=True)
    names = ["classic", "diskless.a", *STATES]
    codes = await brokers.answer(version, *names)
    assert brokers.classic == {"classic"}
    assert brokers.diskless == {"diskless.a"}
    assert codes == {"classic": 0, "diskless.a": 0, **dict.fromkeys(STATES, 3)}


@pytest.mark.parametrize("create", [False, None])
async def test_brokers_that_create_nothing_or_do_not_say_are_obeyed(
    monkeypatch: pytest.MonkeyPatch, create: bool | None
) -> None:
    brokers = Brokers(monkeypatch, create=create)
    assert await brokers.answer(12, "diskless.a", "classic") == {"diskless.a": 3, "classic": 3}
    assert not brokers.classic | brokers.diskless


async def test_a_client_without_the_right_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, create=True, refuse=True)
    assert await brokers.answer(9, "diskless.a", "classic") == {"diskless.a": 29, "classic": 0}


async def test_while_brokers_are_missing_topics_are_created_as_with_an_admin_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(monkeypatch, create=True, live=2, patterns=(), registry=False)
    assert await brokers.answer(9, "a", "__consumer_offsets") == {"a": 0, "__consumer_offsets": 0}
    assert brokers.classic == {"__consumer_offsets"}
    brokers = Brokers(monkeypatch, create=False, live=2, patterns=(), registry=False)
    assert await brokers.answer(9, "a") == {"a": 3}


@pytest.mark.parametrize(
    ("configs", "expected"), [({}, (4, 3)), ({"num.partitions": None}, (-1, 3)), ({"num.partitions": "some"}, (-1, 3))]
)
async def test_created_topics_get_the_brokers_defaults(
    monkeypatch: pytest.MonkeyPatch, configs: dict[str, str | None], expected: tuple[int, int]
) -> None:
    """The controllers, which decide otherwise, may have other defaults."""
    brokers = Brokers(monkeypatch, create=True, live=2)
    brokers.defaults |= configs
    await brokers.answer(9, "a", "diskless.a")
    assert brokers.tried == [(["a", "diskless.a"], *expected)]


async def test_only_one_of_many_requests_creates_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers do the same: the others get the error that there is none yet."""
    brokers = Brokers(monkeypatch, create=True, live=2)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(brokers.answer(9, "a", "b"))
        tasks.create_task(brokers.answer(9, "b", "c"))
    assert sorted(name for names, _, _ in brokers.tried for name in names) == ["a", "b", "c"]
    brokers.diskless.clear()
    assert await brokers.answer(9, "a") == {"a": 0}, "it was deleted"


async def test_a_rejected_creation_is_retried_once_a_second_and_logged_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(monkeypatch, create=True, live=2)
    brokers.error = ErrorCode.invalid_replication_factor
    with structlog.testing.capture_logs() as logs:
        for second in range(61):
            for tenth in range(10):
                brokers.now_s = second + tenth / 10
                assert await brokers.answer(9, "a") == {"a": 3}
    assert (len(brokers.tried), brokers.described, len(logs)) == (61, 61, 2)


async def test_a_client_without_the_right_does_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, create=True, refuse=True, live=2)
    assert await brokers.answer(9, "a") == {"a": 29}
    brokers._refuse = False
    assert await brokers.answer(9, "a") == {"a": 0}


def test_no_more_names_are_remembered_than_need_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_demand_module, "_MAX_REMEMBERED", 3)
    on_demand = OnDemand(lambda: 0.0)
    for name in "abcdef":
        assert on_demand.begin([name]) == [name]
        assert on_demand.warns(name)
        on_demand.end([name], refused=[name])
    assert on_demand.begin("abcdef") == ["a", "b", "c"]
    assert not on_demand.warns("f")
