"""The dashboard for Grafana as it lies in `deploy/`, and its queries as Grafana asks them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "diskless-proxy.json").read_text()
)
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def filled(expression: str, *, rate_interval: str = "5m", shown: str = "5m") -> str:
    """A query as Grafana asks it, with every proxy chosen and the time `shown`, five minutes unless told otherwise."""
    values = {"$__rate_interval": rate_interval, "$__range": shown, "$instance": ".+", "$rack": ".+"}
    for variable, value in values.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression
