"""The interface through which the admin port questions its process, or all workers of a parent."""

from __future__ import annotations

from typing import Protocol

from proxy.admin.api.question import Question, Told
from proxy.config import Settings


class AdminSource(Protocol):
    """One process, or the parent of several, as the admin port sees it."""

    @property
    def settings(self) -> Settings:
        """Settings of the proxy."""

    async def why_not_ready(self) -> str | None:
        """Return what keeps clients from being served; None if nothing does."""

    async def why_not_serving(self) -> str | None:
        """Return what keeps all clients out; None if those of classic topics are served."""

    async def remark(self) -> str | None:
        """Return what an operator should look at although clients are served; None if there is nothing."""

    async def metrics(self) -> bytes:
        """Return the metrics page, in Prometheus' text format 0.0.4."""

    async def tell(self, question: Question) -> list[Told]:
        """Return the answers of the processes that serve clients; a process that does not answer is left out."""

    def drain(self) -> None:
        """Begin a drain, as SIGTERM does; a second call changes nothing."""

    async def set_log_level(self, level: str) -> None:
        """Log lines of that level and above from now on, in all processes."""
