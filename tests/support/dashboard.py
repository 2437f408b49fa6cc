"""The Grafana dashboard of `deploy/`, with its queries in the form in which Grafana sends them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "diskless-proxy.json").read_text()
)
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def filled(expression: str, *, rate_interval: str = "5m", shown: str = "5m") -> str:
    """Return a query as Grafana sends it, with every proxy selected and a time range `shown` of five minutes by
    default."""
    values = {"$__rate_interval": rate_interval, "$__range": shown, "$instance": ".+", "$rack": ".+"}
    for variable, value in values.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression
