"""The admin port over real HTTP, on top of a source that only records: its answers and its rejections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from proxy.admin.api import routes
from proxy.admin.api.figures import Figures
from proxy.admin.api.fleet import FleetView
from proxy.admin.api.pace import MAX_WAITING
from proxy.admin.api.question import MAX_LIMIT, ProcessAnswer, Question, Resource
from proxy.admin.api.topics import TopicFigures
from proxy.admin.http import AdminServer
from proxy.config import Admin, Settings
from proxy.process.ports import StartError
from proxy.telemetry.recent import RECENT_ERRORS, RecentError
from proxy.wire.metadata import Broker
from tests.unit.process.test_ports import settings_of

TOKEN = "s3cret"
HOSTILE = "a\x1b[31m<b>\u202e\udcff"
SHOWN = "a\\x1b[31m<b>\\u202e\\udcff"


def connection(client: str, crossed: int) -> dict[str, Any]:
    return {"client": client, "crossed_bytes": crossed, "sent_bytes": 1, "received_bytes": 1}


class Source:
    """A source of two workers."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.asked: list[Question] = []
        self.drained = 0
        self.levels: list[str] = []
        self.not_ready: str | None = None
        self.not_serving: str | None = None
        self.failure: Exception | None = None
        self.hold: asyncio.Event | None = None
        error = RecentError(5, "warning", "refused", HOSTILE, "fix it", 2)
        self.values: dict[Resource, list[Any]] = {
            Resource.FIGURES: [Figures("a", 3), Figures("b", 2)],
            Resource.FLEET: [FleetView("a", (), ()), FleetView("b", (), (Broker(1, "broker", 9092, None),))],
            Resource.TOPICS: [
                {HOSTILE: TopicFigures("id", 2, True, 1)},
                {HOSTILE: TopicFigures("id", 2, True, 0, 2, 3)},
            ],
            Resource.SEGMENTS: [[], []],
            Resource.CONNECTIONS: [(1, [connection("x", 1)]), (2, [connection("y", 7), connection("z", 0)])],
            Resource.ERRORS: [[error], [error]],
        }

    async def why_not_ready(self) -> str | None:
        return self.not_ready

    async def why_not_serving(self) -> str | None:
        return self.not_serving

    async def remark(self) -> str | None:
        return None

    async def metrics(self) -> bytes:
        return b"# nothing\n"

    async def answers(self, question: Question) -> list[ProcessAnswer]:
        self.asked.append(question)
        if self.hold is not None and question.resource is not Resource.FIGURES:
            await self.hold.wait()
        if self.failure is not None and question.resource is not Resource.FIGURES:
            raise self.failure
        return [ProcessAnswer(number + 1, value) for number, value in enumerate(self.values[question.resource])]

    def drain(self) -> None:
        self.drained += 1

    async def set_log_level(self, level: str) -> None:
        self.levels.append(level)


Ask = Callable[..., Any]


class Port:
    """A listening server, and its client."""

    def __init__(self, source: Source, server: AdminServer, session: aiohttp.ClientSession) -> None:
        self.source, self.server, self.session = source, server, session

    async def ask(self, path: str, method: str = "GET", **options: Any) -> tuple[int, Any, Any]:
        url = f"http://127.0.0.1:{self.server.port}{path}"
        async with self.session.request(method, url, **options) as response:
            text = await response.text()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(text) if is_json else text, response.headers


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[Port]:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(TOKEN)
    async for one in listening(Admin(port=0, token_file=file)):
        yield one


async def listening(admin: Admin) -> AsyncIterator[Port]:
    source = Source(settings_of())
    server = AdminServer(admin, source)
    await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Port(source, server, session)
    finally:
        await server.close()
        RECENT_ERRORS.clear()


async def test_every_resource_is_json_of_all_processes(port: Port) -> None:
    status, overview, _ = await port.ask("/api/overview")
    assert (status, overview["state"], overview["started_ms"], overview["actions"]) == (200, "ready", 2, True)
    _, history, _ = await port.ask("/api/history")
    assert history.keys() == {"interval_ms", "samples"}
    _, fleet, _ = await port.ask("/api/fleet")
    assert fleet.pop("sums")["proxies"] == 0
    assert fleet == {"proxies": [], "brokers": [{"node_id": 1, "rack": None, "address": "broker:9092"}]}
    _, topics, _ = await port.ask("/api/topics")
    assert topics["total"] == 1
    assert topics["topics"][0] == {
        **{"name": SHOWN, "topic_id": "id", "partitions": 2, "diskless": True},
        **{"produced_bytes": 1, "fetched_bytes": 2, "crossed_bytes": 3},
    }
    _, connections, _ = await port.ask("/api/connections")
    assert connections["total"] == 3
    assert [(row["client"], row["worker"]) for row in connections["connections"]] == [("y", 2), ("x", 1), ("z", 2)]
    _, errors, _ = await port.ask("/api/errors")
    (error,) = errors["errors"]
    assert (error["text"], error["count"], error["remedy"]) == (SHOWN, 4, "fix it")
    assert (await port.ask("/api/segments"))[1] == {"segments": []}


async def test_limit_and_contains_reach_the_processes(port: Port) -> None:
    _, connections, _ = await port.ask(f"/api/connections?limit={MAX_LIMIT}&contains=Ab%ff")
    assert port.source.asked[-1] == Question(Resource.CONNECTIONS, "Ab\ufffd", MAX_LIMIT)
    assert connections["total"] == 3
    _, connections, _ = await port.ask("/api/connections?limit=1")
    assert len(connections["connections"]) == 1


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "limit=%C2%B2", f"contains={'x' * 257}", "foo=1"],
)
async def test_invalid_parameters_are_rejected(port: Port, query: str) -> None:
    status, answer, _ = await port.ask(f"/api/connections?{query}")
    assert status == 400
    assert ";" in answer["error"]


async def test_a_huge_query_is_rejected(port: Port) -> None:
    status, _, _ = await port.ask(f"/api/topics?contains={'x' * 20_000}")
    assert status == 400


async def test_all_answers_carry_headers_that_keep_browsers_from_harm(port: Port) -> None:
    for path in ("/", "/healthz", "/servez", "/readyz", "/metrics", "/api/overview", "/api/nothing", "/nothing"):
        _, _, headers = await port.ask(path)
        assert headers["X-Content-Type-Options"] == "nosniff", path
        assert headers["Cache-Control"] == "no-store", path
        assert "'self'" in headers["Content-Security-Policy"], path
        assert "unsafe" not in headers["Content-Security-Policy"], path
        assert headers["X-Frame-Options"] == "DENY", path
        assert "Access-Control-Allow-Origin" not in headers, path
        assert "aiohttp" not in headers["Server"], path


async def test_errors_are_json_under_api_and_text_elsewhere(port: Port) -> None:
    status, answer, _ = await port.ask("/api/nothing")
    assert (status, list(answer)) == (404, ["error"])
    status, answer, headers = await port.ask("/api/drain")
    assert (status, headers["Allow"]) == (405, "POST")
    assert (await port.ask("/nothing"))[0] == 404
    port.source.failure = ValueError("broken")
    status, answer, _ = await port.ask("/api/topics")
    assert status == 500
    assert "broken" not in answer["error"]


async def test_foreign_names_are_rejected_except_for_probes(port: Port) -> None:
    foreign = {"Host": "evil.example"}
    for path in ("/", "/metrics", "/api/overview", "/api/errors"):
        status, answer, _ = await port.ask(path, headers=foreign)
        assert status == 403, path
        assert "admin.allowed_hosts" in answer["error"], path
    for path in ("/healthz", "/servez", "/readyz"):
        assert (await port.ask(path, headers=foreign))[0] == 200, path
    assert (await port.ask("/api/overview", headers={"Host": "localhost:8443"}))[0] == 200


async def test_a_proxy_without_redis_reports_that_it_serves_classic_topics(port: Port) -> None:
    port.source.not_ready = "coordinator: no heartbeat"
    assert (await port.ask("/readyz"))[0] == 503
    assert (await port.ask("/servez"))[:2] == (200, "serving\n")
    port.source.not_serving = "draining"
    assert (await port.ask("/servez"))[:2] == (503, "draining\n")


async def test_actions_need_the_token_from_this_origin(port: Port) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    for headers, expected in (
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": TOKEN}, 401),
        (bearer | {"Origin": "http://evil.example"}, 403),
        (bearer | {"Origin": "null"}, 403),
        (bearer | {"Host": "evil.example"}, 403),
    ):
        status, answer, _ = await port.ask("/api/drain", "POST", headers=headers)
        assert status == expected, headers
        assert ";" in answer["error"]
    assert port.source.drained == 0
    own = bearer | {"Origin": f"http://127.0.0.1:{port.server.port}"}
    assert (await port.ask("/api/drain", "POST", headers=own))[:2] == (202, {"state": "draining"})
    assert port.source.drained == 1


async def test_the_log_level_is_one_of_four(port: Port) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    for body in (b"", b"{", b"[]", b'{"level": "loud"}', b'{"level": ["info"]}', b"{}", b"\xff\xfe", b"[" * 900):
        status, answer, _ = await port.ask("/api/log-level", "PUT", headers=bearer, data=body)
        assert (status, list(answer)) == (400, ["error"]), body
    status, _, _ = await port.ask("/api/log-level", "PUT", headers=bearer, data=b"x" * 5_000)
    assert status == 413
    assert port.source.levels == []
    status, answer, _ = await port.ask("/api/log-level", "PUT", headers=bearer, json={"level": "debug"})
    assert (status, answer, port.source.levels) == (200, {"log_level": "debug"}, ["debug"])


@pytest.mark.parametrize(
    ("kind", "body"),
    [("application/json; charset=xx", b"{}"), ("application/json; charset=hex", b"00"), ("", b"[" * 1000)],
)
async def test_invalid_bodies_are_not_errors_of_the_proxy(port: Port, kind: str, body: bytes) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"} | ({"Content-Type": kind} if kind else {})
    status, answer, _ = await port.ask("/api/log-level", "PUT", headers=headers, data=body)
    assert (status, answer) == (400, {"error": "the body is not a JSON object; send one"})


async def until(met: Callable[[], bool]) -> None:
    while not met():  # noqa: ASYNC110 - what the server does by itself sets no event
        await asyncio.sleep(0.01)


async def half_sent(port: Port) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send an action whose body does not end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port.server.port)
    lines = ("PUT /api/log-level HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKEN}", "Content-Length: 9")
    writer.write("\r\n".join([*lines, "", "{"]).encode())
    await writer.drain()
    return reader, writer


async def test_a_client_that_disconnects_within_its_body_is_not_reported(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "_BODY_TIMEOUT_S", 600.0)
    acting = port.server._pace._lines["acting"].turn
    _, writer = await half_sent(port)
    await until(acting.locked)
    with capture_logs() as lines:
        writer.transport.abort()
        await until(lambda: not acting.locked())
    assert lines == []


async def test_the_port_gives_up_on_a_body_that_does_not_arrive(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_BODY_TIMEOUT_S", 0.05)
    reader, writer = await half_sent(port)
    assert b" 408 " in await reader.readline()
    writer.close()
    assert port.source.levels == []


async def test_metrics_and_actions_do_not_wait_for_readers(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_BODY_TIMEOUT_S", 600.0)
    port.source.hold = asyncio.Event()
    reading = asyncio.create_task(port.ask("/api/topics"))
    await until(lambda: any(question.resource is Resource.TOPICS for question in port.source.asked))
    _, writer = await half_sent(port)
    assert (await port.ask("/metrics"))[0] == 200
    writer.transport.abort()
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert (await port.ask("/api/drain", "POST", headers=bearer))[0] == 202
    assert not reading.done()
    port.source.hold.set()
    assert (await reading)[0] == 200


async def test_actions_need_a_token() -> None:
    async for port in listening(Admin(port=0)):
        status, answer, _ = await port.ask("/api/drain", "POST", headers={"Authorization": "Bearer None"})
        assert status == 403
        assert "admin.token_file" in answer["error"]
        assert (await port.ask("/api/overview"))[1]["actions"] is False


async def test_a_token_file_that_can_not_be_used_ends_the_start(tmp_path: Path) -> None:
    server = AdminServer(Admin(port=0, token_file=tmp_path / "nothing"), Source(settings_of()))
    with pytest.raises(StartError, match=r"admin\.token_file"):
        await server.start()
    await server.close()


async def test_under_overload_probes_are_answered_and_late_requests_are_rejected(port: Port) -> None:
    port.source.hold = asyncio.Event()
    # The session opens as many connections as there are requests.
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as port.session:
        asked = [asyncio.create_task(port.ask("/api/topics")) for _ in range(MAX_WAITING + 20)]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert (await port.ask("/healthz"))[0] == 200
        port.source.not_ready = "brokers: gone"
        assert (await port.ask("/readyz"))[:2] == (503, "brokers: gone\n")
        port.source.hold.set()
        statuses = [status for status, _, _ in await asyncio.gather(*asked)]
    assert 200 in statuses
    assert 503 in statuses
    assert set(statuses) == {200, 503}
