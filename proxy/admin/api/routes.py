"""The paths under `/api`: resources, their parameters, and the right to act."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from proxy.admin.api import connections, errors, fleet, nodes, overview, segments, topics
from proxy.admin.api.hosts import is_own_origin
from proxy.admin.api.question import DEFAULT_LIMIT, LONGEST_CONTAINS, MAX_LIMIT, ProcessAnswer, Question, Resource
from proxy.telemetry.logs import log_level

if TYPE_CHECKING:
    from proxy.admin.api.history import History
    from proxy.admin.api.token import Token
    from proxy.admin.source import AdminSource

log = structlog.get_logger()

_Document = Callable[[Iterable[ProcessAnswer], Question], dict[str, Any]]
_BODY_TIMEOUT_S = 5.0
LOG_LEVELS = ("debug", "info", "warning", "error")


class Refused(Exception):
    """A rejected request; the text has cause and remedy."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Api:
    """Handlers of all paths, for one source."""

    def __init__(self, source: AdminSource, history: History, token: Token) -> None:
        self._source = source
        self._history = history
        self._token = token

    def add_to(self, app: web.Application) -> None:
        """Add all paths."""
        app.router.add_get("/api/overview", self._overview)
        app.router.add_get("/api/history", self._get_history)
        for name, resource, document in (
            ("fleet", Resource.FLEET, fleet.document),
            ("nodes", Resource.NODES, nodes.document),
            ("topics", Resource.TOPICS, topics.document),
            ("segments", Resource.SEGMENTS, segments.document),
            ("connections", Resource.CONNECTIONS, connections.document),
            ("errors", Resource.ERRORS, errors.document),
        ):
            app.router.add_get(f"/api/{name}", self._listing(resource, document))
        app.router.add_put("/api/log-level", self._log_level)
        app.router.add_post("/api/drain", self._drain)

    def _listing(self, resource: Resource, document: _Document) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            question = question_of(resource, request.query)
            return json_response(document(await self._source.answers(question), question))

        return answer

    async def _overview(self, request: web.Request) -> web.Response:
        question_of(Resource.FIGURES, request.query)
        # Concurrently: each waits for unresponsive workers.
        answers, not_ready, remark = await asyncio.gather(
            self._source.answers(Question(Resource.FIGURES)), self._source.why_not_ready(), self._source.remark()
        )
        state = overview.State(not_ready, remark, log_level(), self._token.is_set)
        figures = [one.value for one in answers]
        return json_response(overview.document(self._source.settings, state, figures, self._history.rates()))

    async def _get_history(self, request: web.Request) -> web.Response:
        question_of(Resource.FIGURES, request.query)
        return json_response(self._history.document())

    async def _log_level(self, request: web.Request) -> web.Response:
        self._admit(request)
        level = (await _body(request)).get("level")
        if level not in LOG_LEVELS:
            raise Refused(400, f'level is not one of {", ".join(LOG_LEVELS)}; send it as {{"level": "debug"}}')
        before = log_level()
        await self._source.set_log_level(level)
        log.warning("log_level_changed", level=level, before=before, asked_by=request.remote, by="the admin port")
        return json_response({"log_level": level})

    async def _drain(self, request: web.Request) -> web.Response:
        self._admit(request)
        log.warning("drain_asked_for", asked_by=request.remote, by="the admin port")
        self._source.drain()
        return json_response({"state": "draining"}, status=202)

    def _admit(self, request: web.Request) -> None:
        """Let an action pass. Raises Refused."""
        origin = request.headers.get("Origin")
        if origin is not None and not is_own_origin(origin, request.headers.get("Host", "")):
            self._refuse(request, 403, "the request comes from a page of another host; open this port's own page")
        if not self._token.is_set:
            self._refuse(
                request, 403, "no token is set, so no action is allowed; set admin.token_file and restart the proxy"
            )
        if not self._token.allows(request.headers.get("Authorization", "")):
            self._refuse(
                request,
                401,
                "the token is missing or wrong; send `Authorization: Bearer` and the content of admin.token_file",
            )

    def _refuse(self, request: web.Request, status: int, text: str) -> None:
        log.warning("admin_action_refused", path=request.path, asked_by=request.remote, reason=text)
        raise Refused(status, text)


def question_of(resource: Resource, query: Mapping[str, str]) -> Question:
    """Return the question that the parameters `contains` and `limit` ask. Raises Refused."""
    for name in query:
        if name not in ("contains", "limit"):
            raise Refused(400, "unknown parameter; use contains and limit")
    contains, limit = query.get("contains", ""), query.get("limit", str(DEFAULT_LIMIT))
    if len(contains) > LONGEST_CONTAINS:
        raise Refused(400, f"contains is longer than {LONGEST_CONTAINS} characters; shorten it")
    if not (limit.isascii() and limit.isdigit() and len(limit) <= 9 and 1 <= int(limit) <= MAX_LIMIT):
        raise Refused(400, f"limit is not a number from 1 to {MAX_LIMIT}; narrow the rows down with contains")
    return Question(resource, contains, int(limit))


async def _body(request: web.Request) -> dict[str, Any]:
    """Return the request's body, a small JSON object. Raises Refused."""
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            body = json.loads(await request.text())
    except TimeoutError:
        raise Refused(
            408, f"the body did not arrive within {_BODY_TIMEOUT_S:g} s; send it together with the headers"
        ) from None
    # An unknown encoding, endless nesting, or a client that has gone: not worth a log line.
    except (ValueError, LookupError, RecursionError, ConnectionError):
        body = None
    if not isinstance(body, dict):
        raise Refused(400, "the body is not a JSON object; send one")
    return body


def json_response(document: Mapping[str, Any], status: int = 200) -> web.Response:
    """Return the document as ASCII, because names may hold anything."""
    return web.Response(text=json.dumps(document, allow_nan=False), status=status, content_type="application/json")
