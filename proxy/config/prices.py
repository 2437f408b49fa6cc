"""Prices of a cloud, for the metrics that show cost."""

from __future__ import annotations

from pydantic import Field

from proxy.config.section import Reloadable, Section


class Prices(Section):
    """A cloud's prices, for the metrics of cost.

    The defaults are AWS list prices in many regions. A cost is summed up at the price that holds when the bytes or
    requests are counted: a new price holds for later ones only.
    """

    cross_rack_usd_per_gb: Reloadable[float] = Field(default=0.02, ge=0, allow_inf_nan=False)
    """Price in US dollars of a gigabyte (1,000,000,000 bytes) from one rack to another: 0.01 for each of the two
    ends."""
    put_usd_per_thousand: Reloadable[float] = Field(default=0.005, ge=0, allow_inf_nan=False)
    """Price in US dollars of a thousand PUTs of object storage."""
    get_usd_per_thousand: Reloadable[float] = Field(default=0.0004, ge=0, allow_inf_nan=False)
    """Price in US dollars of a thousand GETs of object storage."""
