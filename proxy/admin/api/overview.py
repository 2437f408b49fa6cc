"""`/api/overview`: the proxy's identity and state, the flows between racks, their cost and the savings."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from proxy import __version__
from proxy.admin.api.figures import Figures, added
from proxy.admin.api.history import Rates
from proxy.admin.api.question import shown
from proxy.config import Settings

CURRENCY_NOTE = "US dollars, by the settings prices.*; an estimate, not an invoice"


@dataclass(frozen=True, slots=True)
class State:
    """The state of the proxy."""

    not_ready: str | None
    """Reason why clients are not served."""
    remark: str | None
    log_level: str
    actions: bool
    """True if a token is set, with which the proxy may be drained."""

    @property
    def name(self) -> Literal["ready", "not_ready", "draining"]:
        """Return the state in a word."""
        if self.not_ready is None:
            return "ready"
        return "draining" if self.not_ready == "draining" else "not_ready"


def document(settings: Settings, state: State, processes: Iterable[Figures], rates: Rates) -> dict[str, Any]:
    """Return the answer of `GET /api/overview`."""
    figures = added(processes)
    return {
        "version": __version__,
        "proxy": settings.identity,
        "rack": settings.rack,
        "now_ms": time.time_ns() // 1_000_000,
        "started_ms": figures.started_ms or None,
        "workers": settings.workers,
        "state": state.name,
        "reason": shown(state.not_ready, 2_000),
        "remark": shown(state.remark, 2_000),
        "log_level": state.log_level,
        "actions": state.actions,
        "docs_url": settings.admin.docs_url,
        "buffers": [buffer._asdict() for buffer in figures.buffers],
        "flows": _flows(figures, rates),
        "savings": figures.saved_usd,
        "storage_cost_usd": figures.storage_usd,
        "currency_note": CURRENCY_NOTE,
    }


def _flows(figures: Figures, rates: Rates) -> list[dict[str, Any]]:
    """Return the flows of records between racks; the costliest first."""
    flows = [
        {
            "kind": kind,
            "direction": direction,
            "client_rack": client_rack,
            "serving_rack": serving_rack,
            "bytes": int(size),
            "bytes_per_second": round(rates.bytes_per_second.get(key, 0.0), 3),
            "crosses": bool(crossed := figures.crossed_bytes.get(key, 0.0)),
            "crossed_bytes": int(crossed),
            "crossed_bytes_per_second": round(rates.crossed_bytes_per_second.get(key, 0.0), 3),
            "cost_usd": figures.crossed_usd.get(key, 0.0),
            "usd_per_hour": rates.usd_per_hour.get(key, 0.0),
        }
        for key, size in figures.record_bytes.items()
        for kind, direction, client_rack, serving_rack in (key,)
    ]
    return sorted(flows, key=lambda flow: (flow["cost_usd"], flow["bytes"]), reverse=True)
