"""`diskless-proxy pipeline traffic`: the bytes between racks, their cost, and the savings."""

from __future__ import annotations

import time
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.commands.common import AsJson, ConfigFile, Master, Shared, SparkConf, Verbose, look_at_storage, run_job

if TYPE_CHECKING:
    from pipeline.job import JobContext, JobReport

Price = Annotated[
    float | None, typer.Option(min=0, help="Price to use instead of the setting of this name under prices.")
]


def traffic(
    config: ConfigFile,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", help="A diskless or classic topic; may be repeated. The report then has no requests to storage."
        ),
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option("--from", help="2026-11-15, 2026-11-15T10:00 (UTC), or how long ago: 36h. 7 days before --to."),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="The same formats as --from; by default now.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="A directory to write traffic.csv, .parquet, .svg and costs.csv to.")
    ] = None,
    cross_rack_usd_per_gb: Price = None,
    put_usd_per_thousand: Price = None,
    get_usd_per_thousand: Price = None,
    racks: Annotated[
        int | None, typer.Option(min=1, help="Racks of the model without proxies; by default the racks in the traffic.")
    ] = None,
    replication_factor: Annotated[
        int,
        typer.Option(
            min=1,
            max=100,
            help="Replication factor of diskless topics if they were classic; with 1 there is no replication.",
        ),
    ] = 3,
    follower_fetching: Annotated[
        bool,
        typer.Option(
            "--follower-fetching", help="Assume that, without proxies, consumers would read in their rack (KIP-392)."
        ),
    ] = False,
    as_json: AsJson = False,
    master: Master = None,
    conf: SparkConf = None,
    verbose: Verbose = False,
) -> None:
    """Show what moved between which racks, what it cost, and what it would have cost without the proxies.

    The source is the rollups that every proxy writes to object storage; nothing is changed. Whole hours of UTC.
    """
    from pipeline.traffic.span import span_of

    named = {
        "cross_rack_usd_per_gb": cross_rack_usd_per_gb,
        "put_usd_per_thousand": put_usd_per_thousand,
        "get_usd_per_thousand": get_usd_per_thousand,
    }
    given = {name: price for name, price in named.items() if price is not None}
    for name, price in given.items():
        if not isfinite(price):
            raise typer.BadParameter(f"{price} is not a price; write a number of US dollars", param_hint=name)
    try:
        span = span_of(begin, end, time.time_ns() // 1_000_000)
    except ValueError as error:
        words = [word for word, text in (("--from", begin), ("--to", end)) if text is not None]
        raise typer.BadParameter(str(error), param_hint=words) from error

    def work(context: JobContext) -> JobReport:
        from pipeline.traffic.job import TrafficOptions, run

        prices = context.settings.prices.model_copy(update=given)
        return run(context, TrafficOptions(span, prices, racks, replication_factor, follower_fetching, output))

    run_job("traffic", Shared(config, topic, as_json, False, master, conf, verbose), work, look=look_at_storage)
