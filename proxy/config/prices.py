"""What a cloud takes, for the metrics that tell cost."""

from __future__ import annotations

from pydantic import Field

from proxy.config.section import Reloadable, Section


class Prices(Section):
    """A cloud's prices, for the metrics of cost; the defaults are list prices of AWS in many regions. Costs are sums of
    what was counted since the start, at the price of its day: another price holds for what comes after."""

    cross_rack_usd_per_gb: Reloadable[float] = Field(default=0.02, ge=0, allow_inf_nan=False)
    """US dollars for a gigabyte (1,000,000,000 bytes) from one rack to another: 0.01 for each of the two ends."""
    put_usd_per_thousand: Reloadable[float] = Field(default=0.005, ge=0, allow_inf_nan=False)
    """US dollars for a thousand PUTs of object storage."""
    get_usd_per_thousand: Reloadable[float] = Field(default=0.0004, ge=0, allow_inf_nan=False)
    """US dollars for a thousand GETs of object storage."""
