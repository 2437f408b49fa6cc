"""The interface through which the admin port questions its process, or all workers of a parent."""

from __future__ import annotations

from typing import Protocol

from proxy.admin.api.question import ProcessAnswer, Question
from proxy.config import Settings


class AdminSource(Protocol):
    """One process, or the parent of several, as the admin port sees it."""

    @property
    def settings(self) -> Settings:
        """Settings of the proxy."""

    async def why_not_ready(self) -> str | None:
        """Return why clients are not served; None if they are."""

    async def why_not_serving(self) -> str | None:
        """Return why no client is accepted; None if clients of classic topics are served."""

    async def remark(self) -> str | None:
        """Return a problem that an operator should look at although clients are served; None if there is none."""

    async def metrics(self) -> bytes:
        """Return the metrics page, in Prometheus' text format 0.0.4."""

    async def answers(self, question: Question) -> list[ProcessAnswer]:
        """Return the answers of the processes that serve clients; a process that does not answer is left out."""

    def drain(self) -> None:
        """Begin a drain, as SIGTERM does; a second call changes nothing."""

    async def set_log_level(self, level: str) -> None:
        """Log lines of that level and above from now on, in all processes."""
