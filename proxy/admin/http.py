"""The admin port: `/healthz` (the process runs), `/readyz` (clients are served, or why not) and `/metrics`."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from proxy.config import Admin
from proxy.process.ports import admin_taken


class AdminSource(Protocol):
    """Who the admin port speaks for: one process, or the parent of several."""

    async def why_not_ready(self) -> str | None:
        """What keeps clients from being served; None where all is well."""

    async def remark(self) -> str | None:
        """What someone should see to though clients are served; None where there is nothing."""

    async def metrics(self) -> bytes:
        """The metrics page, in Prometheus' text format 0.0.4."""


class AdminServer:
    """Serves one source."""

    def __init__(self, admin: Admin, source: AdminSource) -> None:
        self._admin = admin
        self._source = source
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. Raises StartError."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._admin.host, self._admin.port, shutdown_timeout=1.0).start()
        except OSError as error:
            raise admin_taken(self._admin, error) from error

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

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
