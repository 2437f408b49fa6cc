"""The admin port: `/healthz` (the process runs), `/readyz` (clients are served, or why not), `/metrics`, page and JSON.

It shares its event loop with clients, so it takes turns (`api.pace`), except for the first two, which decide whether
the process is restarted. Metrics and actions have lines of their own, so that neither a page that waits for
unresponsive workers nor a body that does not come delays a scrape. Answers may not be cached, framed, or read from
another site.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from aiohttp import web

from proxy.admin.api.figures import Figures
from proxy.admin.api.history import History
from proxy.admin.api.hosts import may_be_asked_for
from proxy.admin.api.pace import Busy, Pace
from proxy.admin.api.question import Question, Resource
from proxy.admin.api.routes import Api, Refused, json_response
from proxy.admin.api.token import Token
from proxy.admin.page import add_page
from proxy.admin.source import AdminSource
from proxy.config import Admin
from proxy.process.ports import admin_taken

log = structlog.get_logger()

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_LARGEST_BODY_BYTES = 1_024
_PROBES = ("/healthz", "/servez", "/readyz")
"""Paths that the process's supervisor requests, under any host name; they reveal nothing worth stealing."""
_HEADERS = {
    "Server": "diskless-proxy",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class AdminServer:
    """Serves the admin port of one source."""

    def __init__(self, admin: Admin, source: AdminSource) -> None:
        self._admin = admin
        self._source = source
        self._runner: web.AppRunner | None = None
        self._history = History(self._look, source.settings.prices)
        self._sampling: asyncio.Task[None] | None = None
        self._pace = Pace()

    async def start(self) -> None:
        """Listen. Raises StartError."""
        token = Token(self._admin.token_file)
        app = web.Application(middlewares=[self._answer], client_max_size=_LARGEST_BODY_BYTES)
        app.on_response_prepare.append(_add_headers)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/servez", self._servez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        Api(self._source, self._history, token).add_to(app)
        add_page(app)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._admin.host, self._admin.port).start()
        except OSError as error:
            raise admin_taken(self._admin, error) from error
        self._sampling = asyncio.get_running_loop().create_task(self._history.keep_sampling())

    @property
    def port(self) -> int:
        """Return the port once it listens: `admin.port`, or the port that the system picked."""
        assert self._runner is not None
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Stop listening."""
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()

    async def _look(self) -> list[Figures]:
        return [one.value for one in await self._source.answers(Question(Resource.FIGURES))]

    @web.middleware
    async def _answer(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Reject foreign host names, take turns, and report errors under `/api` as JSON."""
        if request.path in _PROBES:
            return await handler(request)
        try:
            if not may_be_asked_for(request.headers.get("Host", ""), self._admin.host, self._admin.allowed_hosts):
                raise Refused(
                    403,
                    "the Host header is neither localhost nor a loopback address; use one of these, or add the host to "
                    "admin.allowed_hosts",
                )
            async with self._pace.turn(_line_of(request)):
                return await handler(request)
        except Refused as error:
            return _failed(error.status, str(error))
        except Busy:
            return _failed(503, "too many requests wait for this port; poll less often", {"Retry-After": "1"})
        except web.HTTPException as error:
            if not request.path.startswith("/api"):
                raise
            return _failed(error.status, f"{error.reason}; see docs/cli.md for the paths", error.headers)
        except Exception as error:
            log.error("admin_request_failed", path=request.path[:100], exc_info=error, remedy="report it")
            return _failed(500, "internal error; see the log, and report it")

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _servez(self, request: web.Request) -> web.Response:
        reason = await self._source.why_not_serving()
        return web.Response(text="serving\n") if reason is None else web.Response(status=503, text=f"{reason}\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        reason = await self._source.why_not_ready()
        if reason is not None:
            return web.Response(status=503, text=f"{reason}\n")
        remark = await self._source.remark()
        return web.Response(text="ready\n" if remark is None else f"ready, but {remark}\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=await self._source.metrics(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )


def _line_of(request: web.Request) -> str:
    """Return the line that a request waits in."""
    if request.path == "/metrics":
        return "metrics"
    return "reading" if request.method in ("GET", "HEAD") else "acting"


def _failed(status: int, text: str, headers: Any = None) -> web.Response:
    response = json_response({"error": text}, status)
    for name in ("Allow", "Retry-After"):
        if headers and name in headers:
            response.headers[name] = headers[name]
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in _HEADERS.items():
        if name == "Server" or name not in response.headers:
            response.headers[name] = value
