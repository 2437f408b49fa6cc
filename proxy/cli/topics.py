"""`diskless-proxy topics`: which topics there are, and what diskless ones take up. No proxy has to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy.console.config_file import CONFIG_VARIABLE, settings_file
from proxy.console.console import FAILED, AsJson, ConfigFile, output, progress, run_command
from proxy.protocol.topic_ids import uuid_text

if TYPE_CHECKING:
    from proxy.inspection.shadows import BrokersView
    from proxy.inspection.topics import TopicFigures

NAMED_DISKLESS = "live, with a diskless name"
"""State of a classic topic whose name `default_diskless_topics` matches."""

app = typer.Typer(help="Topics: diskless or classic, offsets and sizes.", no_args_is_help=True)


@app.command("list")
def list_topics(
    config: ConfigFile,
    diskless: Annotated[
        bool, typer.Option("--diskless", help="Only diskless topics, without a request to the brokers.")
    ] = False,
    under_replicated: Annotated[
        bool,
        typer.Option(
            "--under-replicated",
            help="Partitions short of replicas: those that get more from a proxy, and those out of sync.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List all topics that the proxy's principal may see, classic and diskless."""
    if under_replicated:
        _list_under_replicated(config, diskless, as_json)
        return
    rows = run_command(lambda: _listed(config, diskless))
    if as_json:
        typer.echo(json.dumps({"topics": rows}))
        return
    from rich.table import Table

    table = Table("topic", "kind", "partitions", "state", "topic ID")
    for row in rows:
        table.add_row(row["topic"], row["kind"], str(row["partitions"]), row["state"], row["topic_id"])
    output().print(table)
    if misnamed := [row["topic"] for row in rows if row["state"] == NAMED_DISKLESS]:
        from proxy.housekeeping.named_diskless import REMEDY

        output().print(
            f"{len(misnamed)} classic {'topic has' if len(misnamed) == 1 else 'topics have'} a name that "
            f"default_diskless_topics matches: {REMEDY}",
            soft_wrap=True,
            markup=False,
        )


def _list_under_replicated(config: Path, diskless_only: bool, as_json: bool) -> None:
    rows = run_command(lambda: _short_of_replicas(config, diskless_only))
    if as_json:
        typer.echo(json.dumps({"partitions": rows}))
        return
    from rich.table import Table

    table = Table("topic", "kind", "partition", "replicas", "in sync", "wanted", "missing", "why", "pending since")
    for row in rows:
        replicas, in_sync = (", ".join(map(str, row[key])) for key in ("replicas", "in_sync"))
        counts = [_count(row[key]) for key in ("wanted", "missing")]
        table.add_row(
            row["topic"],
            row["kind"],
            _count(row["partition"]),
            replicas,
            in_sync,
            *counts,
            ", ".join(row["why"]),
            row["pending_since"] or "",
        )
    output().print(table)


async def _short_of_replicas(config: Path, diskless_only: bool) -> list[dict[str, Any]]:
    from proxy.config import load_settings
    from proxy.inspection.under_replicated import DISKLESS, under_replicated

    return [
        {
            "topic": one.topic,
            "kind": one.kind,
            "topic_id": uuid_text(one.topic_id),
            "partition": one.partition,
            "replicas": list(one.replicas),
            "in_sync": list(one.in_sync),
            "pending": one.pending,
            "out_of_sync": one.out_of_sync,
            "wanted": one.wanted,
            "missing": one.missing,
            "why": list(one.why),
            "pending_since": one.pending_since,
        }
        for one in await under_replicated(load_settings(config))
        if one.kind == DISKLESS or not diskless_only
    ]


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="The topic's name.", show_default=False)],
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Number of partitions; by default the brokers' num.partitions.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="KEY=VALUE|FILE",
            help="A config of the topic, may be repeated; or, without =, the settings file of the proxy to ask, where "
            f"{CONFIG_VARIABLE} does not name it.",
        ),
    ] = None,
    ca_file: Annotated[
        str, typer.Option(help="CAs of the proxy's certificate, if they are not those of brokers.tls.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Create a diskless topic, or with --config diskless.enable=false a classic one.

    It is created through the proxy with these settings, which has to run, with the proxy's own credentials.
    kafka-topics can't: it checks config names itself.

    Example: `diskless-proxy topics create orders --partitions 12 --config retention.ms=86400000`.
    """
    from proxy.cli.topic_creation import create_topic
    from proxy.config import load_settings

    files = [text for text in config or () if "=" not in text]
    if len(files) > 1:
        raise typer.BadParameter(f"--config names several files: {', '.join(files)}; a config is KEY=VALUE")
    path = Path(files[0]) if files else settings_file()
    configs = dict(_pair(text) for text in config or () if text not in files)
    created = run_command(lambda: create_topic(load_settings(path), name, partitions, configs, ca_file))
    kind, topic_id = "diskless" if created.diskless else "classic", uuid_text(created.topic_id)
    if as_json:
        row = {"topic": name, "kind": kind, "topic_id": topic_id, "partitions": created.partitions}
        typer.echo(json.dumps(row))
    else:
        typer.echo(f"{name}: created, {kind}, {_count(created.partitions)} partitions, topic ID {topic_id}")


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    if not key.strip():
        raise typer.BadParameter(f"--config {text!r} is not KEY=VALUE, such as retention.ms=86400000")
    return key.strip(), value.strip()


@app.command("describe")
def describe_topics(
    config: ConfigFile,
    topics: Annotated[list[str] | None, typer.Argument(help="Names; by default all diskless topics.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only offsets and live bytes, without reading the index or listing storage.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Offsets, sizes, configs and stray records of diskless topics. Exits with 1 where records are lost.

    Live: what the topic's records take up. Shared: the part of it in objects that other topics use too. Total: those
    objects as a whole. Used: what live records of any topic take up there. Dead: the rest, of deleted records, which
    goes with the last live one.
    """
    described = run_command(lambda: _described(config, topics or [], quick))
    if as_json:
        typer.echo(json.dumps({"topics": described}))
    else:
        for topic in described:
            _print_topic(topic)
    if any(topic["missing_objects"] for topic in described):
        raise typer.Exit(FAILED)


@app.command("accept-replicas")
def accept_replicas(
    config: ConfigFile,
    topics: Annotated[list[str], typer.Argument(help="Names, as `list --under-replicated` lists them.")],
    as_json: AsJson = False,
) -> None:
    """Be content with the replicas that topics have, which were made while brokers were missing.

    No proxy gives them more from then on. Nothing changes on the brokers.
    """
    from proxy.config import load_settings
    from proxy.inspection import under_replicated

    run_command(lambda: under_replicated.accept_replicas(load_settings(config), topics))
    accepted = list(dict.fromkeys(topics))
    if as_json:
        typer.echo(json.dumps({"topics": accepted}))
        return
    for topic in accepted:
        typer.echo(f"{topic} stays as it is")


async def _listed(config: Path, diskless_only: bool) -> list[dict[str, Any]]:
    from proxy.config import load_settings
    from proxy.inspection.shadows import all_topics, classic_topics_named_diskless
    from proxy.inspection.stores import open_registry

    settings = load_settings(config)
    registered = {topic.name: topic for topic in await open_registry(settings)}
    rows = {
        topic.name: _listed_row(topic.name, "diskless", topic.partitions, topic.state, topic.topic_id)
        for topic in registered.values()
    }
    if not diskless_only:
        shadows = await all_topics(settings)
        for topic in registered.values():
            if topic.state == "live" and shadows.get(topic.name, (b"", 0))[0] != topic.topic_id:
                rows[topic.name]["state"] = "live, without its shadow"
        misnamed = await classic_topics_named_diskless(settings, registered)
        for name, (topic_id, partitions) in shadows.items():
            if name not in rows:
                state = NAMED_DISKLESS if name in misnamed else "live"
                rows[name] = _listed_row(name, "classic", partitions, state, topic_id)
    return [rows[name] for name in sorted(rows)]


def _listed_row(name: str, kind: str, partitions: int, state: str, topic_id: bytes) -> dict[str, Any]:
    return {"topic": name, "kind": kind, "partitions": partitions, "state": state, "topic_id": uuid_text(topic_id)}


async def _described(config: Path, names: list[str], quick: bool) -> list[dict[str, Any]]:
    from proxy.config import load_settings
    from proxy.inspection.shadows import look_at_shadows
    from proxy.inspection.stores import object_sizes, open_stores
    from proxy.inspection.topics import topic_figures

    settings = load_settings(config)
    async with open_stores(settings) as stores:
        topics = stores.named(names)
        brokers = await look_at_shadows(settings, topics)
        sizes = None
        if not quick and topics:
            with progress("listing object storage", "objects") as count:
                sizes = await object_sizes(stores.storage, count)
        described = []
        for topic in topics:
            with progress(f"reading the index of {topic.name}", "rows") as count:
                figures = await topic_figures(stores, topic, sizes, count, read_rows=not quick)
            described.append(_as_json(figures, brokers, settings.redis.shards))
    return described


def _as_json(figures: TopicFigures, brokers: BrokersView, shards: int) -> dict[str, Any]:
    from proxy.coordinator.shards import partition_key, shard_of
    from proxy.diskless.wal.segment import segment_key
    from proxy.inspection.topics import dead_bytes

    topic = figures.topic
    return {
        "topic": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "state": topic.state,
        "partition_count": topic.partitions,
        "configs": dict(sorted(topic.configs.items())),
        "live_bytes": figures.live_bytes,
        "shared_bytes": figures.shared_bytes if figures.rows_read else None,
        "objects": figures.objects if figures.rows_read else None,
        "total_bytes": figures.total_bytes,
        "used_bytes": figures.used_bytes if figures.rows_read else None,
        "dead_bytes": dead_bytes(figures),
        "missing_objects": [segment_key(segment) for segment in figures.missing],
        "shadow": brokers.state_of(topic),
        "stray_records": brokers.stray_records.get(topic.name, 0) if not brokers.failure else None,
        "brokers_failure": brokers.failure,
        "partitions": [
            {
                "partition": one.partition,
                "shard": shard_of(partition_key(topic.topic_id, one.partition), shards),
                "log_start_offset": one.log_start_offset,
                "high_watermark": one.high_watermark,
                "rows": one.rows,
                "live_bytes": one.live_bytes,
                "shared_bytes": one.shared_bytes if figures.rows_read else None,
                "objects": one.objects if figures.rows_read else None,
            }
            for one in figures.partitions
        ],
    }


def _print_topic(topic: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = output()
    configs = ", ".join(f"{name}={value}" for name, value in topic["configs"].items())
    console.print(f"[bold]{escape(topic['topic'])}[/bold]  {topic['state']}  {topic['topic_id']}", soft_wrap=True)
    console.print(f"  configs: {escape(configs)}", soft_wrap=True)
    sizes = [
        f"{label} {_count(topic[key])}"
        for label, key in (
            ("live", "live_bytes"),
            ("shared", "shared_bytes"),
            ("total", "total_bytes"),
            ("used", "used_bytes"),
            ("dead", "dead_bytes"),
        )
        if topic[key] is not None
    ]
    objects = ""
    if topic["objects"] is not None:
        objects = f" in {topic['objects']:,} {'object' if topic['objects'] == 1 else 'objects'}"
    console.print(f"  bytes{objects}: {', '.join(sizes)}", soft_wrap=True)
    for warning in _warnings(topic):
        console.print(f"  {warning}", style="red", soft_wrap=True, markup=False)
    names = ("partition", "shard", "log start", "high watermark", "rows", "live bytes", "shared bytes", "objects")
    table = Table(*names)
    for column in table.columns:
        column.justify = "right"
    keys = ("partition", "shard", "log_start_offset", "high_watermark", "rows", "live_bytes", "shared_bytes", "objects")
    for partition in topic["partitions"]:
        table.add_row(*(_count(partition[key]) for key in keys))
    console.print(table)


def _warnings(topic: dict[str, Any]) -> list[str]:
    warnings = []
    if topic["missing_objects"]:
        count = len(topic["missing_objects"])
        warnings.append(
            f"RECORDS ARE LOST: {count} objects are missing in storage, first {topic['missing_objects'][0]}"
        )
    if topic["stray_records"]:
        warnings.append(
            f"{topic['stray_records']:,} stray records: a producer sent them to the brokers directly, not "
            f"through the proxies; no reader gets them (docs/operations/past-the-proxies.md)"
        )
    if topic["shadow"] not in ("present", "unknown"):
        warnings.append(f"the shadow topic on the brokers is {topic['shadow']}")
    if topic["brokers_failure"]:
        warnings.append(f"stray records are not known: {topic['brokers_failure']}")
    return warnings


def _count(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"
