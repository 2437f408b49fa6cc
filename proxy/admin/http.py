"""The admin port: `/healthz` (the process runs), `/readyz` (clients are served, or why not) and `/metrics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest

from proxy.admin.metrics import ProxyCollector

if TYPE_CHECKING:
    from proxy.context import Context


class AdminServer:
    """Serves one context. `why_not_ready` gives the reason for a 503 of `/readyz`, or None."""

    def __init__(self, context: Context, why_not_ready: Callable[[Context], str | None]) -> None:
        self._context = context
        self._why_not_ready = why_not_ready
        self._registry = CollectorRegistry()
        self._registry.register(ProxyCollector(context))
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. Raises OSError."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        admin = self._context.settings.admin
        await web.TCPSite(self._runner, admin.host, admin.port, shutdown_timeout=1.0).start()

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        reason = self._why_not_ready(self._context)
        return web.Response(text="ready\n") if reason is None else web.Response(status=503, text=f"{reason}\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )
