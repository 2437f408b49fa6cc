"""`diskless-proxy segments`: what is in the objects of the diskless log. No proxy has to run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import typer

from proxy.console.console import FAILED, AsJson, ConfigFile, fail, output, progress, run_command

if TYPE_CHECKING:
    from proxy.inspection.dump import Source
    from proxy.inspection.segments import Extent, SegmentFigures

app = typer.Typer(help="WAL segments: the topics of their bytes, their batches and records.", no_args_is_help=True)

_NAME = re.compile("(?:[0-9a-f]{2}/)?([0-9a-f]{32})")
"""A segment's UUID, or its whole key."""


class _Found(NamedTuple):
    """A segment's source, and how it was named."""

    label: str
    source: Source
    extents: tuple[Extent, ...] | None
    """Extents by position, if the coordinator was asked."""


@app.command("describe")
def describe_segments(
    config: ConfigFile,
    segment: Annotated[
        str | None, typer.Argument(help="The object's key, or its UUID, with or without dashes.")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="All segments with live bytes of this topic.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show whose live bytes lie in an object, at which offsets; its total, used and dead bytes.

    For one object the index of all topics is read, until all used bytes of it are found. Exits with 1 if records are
    lost: a used object is missing.
    """
    if (segment is None) == (topic is None):
        raise typer.BadParameter("name either a segment or --topic")
    figures = run_command(lambda: _described(config, segment, topic))
    described = [_figures_as_json(one) for one in figures]
    if as_json:
        typer.echo(json.dumps({"segments": described}))
    else:
        _print_figures(described, single=segment is not None)
    if any(one.size_bytes is None and one.used_bytes for one in figures):
        raise typer.Exit(FAILED)


@app.command("dump")
def dump_segment(
    segment: Annotated[
        str, typer.Argument(help="A file, a file:// or s3:// URL, or with --config the key or UUID of a segment.")
    ],
    config: Annotated[
        Path | None, typer.Option("--config", help="A settings file, for the storage's endpoint and credentials.")
    ] = None,
    records: Annotated[bool, typer.Option("--records", help="Also every record: key, payload, headers.")] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Get topics and offsets of the batches from the coordinator.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line for each batch.")] = False,
) -> None:
    """Print every batch of a segment, as kafka-dump-log does. Exits with 1 where one is corrupt or cut off.

    Base offsets are 0 in a segment, as producers sent them: the coordinator has the true ones (--offsets). Objects that
    a merge or a compaction made have them.
    """
    if offsets and config is None:
        raise typer.BadParameter("--offsets needs --config")
    corrupt = run_command(lambda: _dump(segment, config, records=records, offsets=offsets, as_json=as_json))
    if corrupt:
        fail(f"{corrupt} corrupt {'batches' if corrupt > 1 else 'batch'} in {segment}")


async def _described(config: Path, segment: str | None, topic: str | None) -> list[SegmentFigures]:
    from proxy.config import load_settings
    from proxy.inspection.segments import segment_figures, segments_of_topic
    from proxy.inspection.stores import InspectionError, object_sizes, open_stores

    async with open_stores(load_settings(config)) as stores:
        if topic is not None:
            (entry,) = stores.named([topic])
            with progress("listing object storage", "objects") as count:
                sizes = await object_sizes(stores.storage, count)
            with progress(f"reading the index of {topic}", "rows") as count:
                return await segments_of_topic(stores, entry, sizes, count)
        assert segment is not None
        name = _segment_name(segment)
        if name is None:
            raise InspectionError(
                f"{segment} is not a segment's name; name a UUID, or the object's key such as ab/ab12…"
            )
        with progress("reading the index", "rows") as count:
            figures = await segment_figures(stores, name, count)
        if figures.size_bytes is None and not figures.used_bytes:
            raise InspectionError(f"no object {segment} in {stores.settings.storage.url}, and nothing uses it")
        return [figures]


def _segment_name(text: str) -> bytes | None:
    named = _NAME.fullmatch(text.replace("-", "").lower())
    return bytes.fromhex(named[1]) if named else None


def _figures_as_json(figures: SegmentFigures) -> dict[str, Any]:
    from proxy.diskless.wal.segment import segment_key

    return {
        "segment": segment_key(figures.segment),
        "total_bytes": figures.size_bytes,
        "used_bytes": figures.used_bytes,
        "dead_bytes": figures.dead_bytes,
        "rows": figures.rows,
        "extents": [extent._asdict() for extent in figures.extents],
    }


def _print_figures(described: list[dict[str, Any]], *, single: bool) -> None:
    from rich.table import Table

    console = output()
    if single:
        (one,) = described
        total, dead = ("MISSING", "–") if one["total_bytes"] is None else (f"{one['total_bytes']:,}", one["dead_bytes"])
        console.print(f"[bold]{one['segment']}[/bold]")
        console.print(f"  bytes: total {total}, used {one['used_bytes']:,}, dead {dead}")
    names = ["topic", "partition", "base offset", "last offset", "position", "bytes"]
    names = names if single else ["segment", "total bytes", "used bytes", "dead bytes", *names]
    table = Table(*names)
    for column in table.columns:
        column.justify = "left" if column.header in ("segment", "topic") else "right"
    for one in described:
        total = "MISSING" if one["total_bytes"] is None else f"{one['total_bytes']:,}"
        dead = "–" if one["dead_bytes"] is None else f"{one['dead_bytes']:,}"
        head = [] if single else [one["segment"], total, f"{one['used_bytes']:,}", dead]
        for number, extent in enumerate(one["extents"]):
            cells = [extent["topic"], *(f"{value:,}" for value in list(extent.values())[1:])]
            table.add_row(*(head if number == 0 else [""] * len(head)), *cells)
    console.print(table)


async def _dump(segment: str, config: Path | None, *, records: bool, offsets: bool, as_json: bool) -> int:
    """Print all; how many batches are corrupt."""
    from proxy.inspection.dump import dumped_batches, owner_of
    from proxy.inspection.lines import batch_as_json, batch_line, record_line
    from proxy.inspection.records import read_records
    from proxy.records.batches import RecordsError

    corrupt = 0
    async with _found(segment, config, offsets) as found:
        if not as_json:
            typer.echo(f"Dumping {found.label}")
        next_offsets: dict[Extent, int] = {}
        async for batch in dumped_batches(found.source):
            owner, base_offset = None, batch.base_offset
            if (
                found.extents is not None
                and (owner := owner_of(batch, found.extents)) is not None
                and not batch.has_offset
            ):
                base_offset = next_offsets.get(owner, owner.base_offset)
                next_offsets[owner] = base_offset + batch.header.last_offset_delta + 1
            of_batch, broken = [], None
            try:
                of_batch = list(read_records(batch.data, batch.header)) if records and batch.is_valid else []
            except RecordsError as error:
                broken = str(error)
            if not batch.is_valid or broken:
                corrupt += 1
            known = found.extents is not None
            if as_json:
                shown = of_batch if records else None
                typer.echo(json.dumps(batch_as_json(batch, base_offset, owner, known, shown, broken)))
                continue
            typer.echo(batch_line(batch, base_offset, owner, known))
            for record in of_batch:
                typer.echo(record_line(record, batch, base_offset))
            if broken:
                typer.echo(f"| {broken}")
    return corrupt


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)


@asynccontextmanager
async def _found(segment: str, config: Path | None, offsets: bool) -> AsyncIterator[_Found]:
    """Open the bytes of the named segment. Raises InspectionError, StorageError, CoordinatorUnavailable."""
    from proxy.config import Storage, load_settings
    from proxy.diskless.wal.segment import segment_key
    from proxy.inspection.dump import LocalFile, StoredSegment
    from proxy.inspection.segments import segment_figures
    from proxy.inspection.stores import InspectionError, open_stores, opened
    from proxy.storage import open_storage

    settings = load_settings(config) if config is not None else None
    name = _segment_name(segment)
    url = urlsplit(segment)
    path = Path(unquote(url.path) if url.scheme == "file" else segment)
    if offsets and settings is not None:
        name = name or _segment_name(path.name)
        if name is None:
            raise InspectionError(f"{segment} does not end in a segment's name, so the coordinator can't identify it")
        async with open_stores(settings) as stores:
            with progress("reading the index", "rows") as count:
                extents: tuple[Extent, ...] | None = (await segment_figures(stores, name, count)).extents
    else:
        extents = None
    if url.scheme == "file" or (not url.scheme and _is_there(path)):
        yield _Found(str(path), LocalFile(path), extents)
    elif url.scheme == "s3":
        parent, _, key = segment.rpartition("/")
        storage = settings.storage if settings is not None else Storage(url=parent)
        async with opened(open_storage(storage.model_copy(update={"url": parent}), "s3")) as store:
            yield _Found(segment, StoredSegment(store, key), extents)
    elif name is not None and settings is not None:
        storage_url = settings.storage.url.rstrip("/")
        async with opened(open_storage(settings.storage, settings.storage_class)) as store:
            key = segment_key(name)
            yield _Found(f"{storage_url}/{key}", StoredSegment(store, key), extents)
    elif name is not None:
        raise InspectionError(f"there is no file {segment}; for a segment in object storage, use --config")
    else:
        raise InspectionError(
            f"there is no file {segment}, and it is neither a file:// or s3:// URL nor a segment's UUID or key"
        )
