"""`diskless-proxy verify`: try whether a Kafka cluster keeps its promises, and judge what its clients saw."""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.console.console import FAILED, AsJson, fail
from proxy.verify.options import Choice, VerifyError, VerifyOptions

if TYPE_CHECKING:
    from proxy.demo.signals import EndSignals
    from proxy.judge.findings import Verdict
    from proxy.verify.verification import Verification

CHOICES = "auto uses what the cluster has, on requires it, off leaves it out."
LINES_APART_SECONDS = 5.0


def verify(
    bootstrap: Annotated[
        str | None, typer.Option(help="Brokers or proxies, as host:port, several separated by commas.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long producers send. Reading it all comes on top.")] = 30.0,
    seed: Annotated[int | None, typer.Option(help="Seed of all random choices; a new one if left out.")] = None,
    topics: Annotated[
        str | None,
        typer.Option(help="Existing topics, separated by commas, which get the records. New ones if left out."),
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, max=1000, help="Partitions of each new topic.")] = 3,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="Replicas of new topics; 3, or one per broker, if left out.")
    ] = None,
    diskless: Annotated[
        Choice, typer.Option(help=f"Whether one of the new topics is diskless: {CHOICES}")
    ] = Choice.auto,
    transactions: Annotated[
        Choice, typer.Option(help=f"Whether producers write in transactions: {CHOICES}")
    ] = Choice.auto,
    consumer_protocol: Annotated[
        Choice, typer.Option(help=f"Whether groups of the consumer protocol (KIP-848) read, too: {CHOICES}")
    ] = Choice.auto,
    rate: Annotated[float, typer.Option(min=1, help="Records a second of all producers together.")] = 300.0,
    producers: Annotated[int, typer.Option(min=1, max=100, help="Producers of each kind.")] = 2,
    record_bytes: Annotated[int, typer.Option(min=64, max=900_000, help="Size of each record's value.")] = 128,
    client_config: Annotated[
        Path | None, typer.Option(help="A file with librdkafka's settings, name=value, such as those of TLS and SASL.")
    ] = None,
    delivery_timeout_seconds: Annotated[float, typer.Option(min=1, help="When producers give up a record.")] = 60.0,
    grace_seconds: Annotated[
        float, typer.Option(min=1, help="Time without a record that consumers get at the end.")
    ] = 60.0,
    stuck_seconds: Annotated[float, typer.Option(min=1, help="Time without progress that is an anomaly.")] = 120.0,
    write_history: Annotated[
        Path | None, typer.Option(help="Keep the history in this file. Without it, one with anomalies is kept.")
    ] = None,
    keep_topics: Annotated[bool, typer.Option("--keep-topics", help="Keep the new topics in any case.")] = False,
    history: Annotated[
        Path | None, typer.Option(help="Judge this history again. Nothing else is done, and no cluster is needed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write to any Kafka cluster, read everything, and look for lost, repeated, reordered and aborted records.

    Plain, idempotent and transactional producers write unique records. Consumers of all kinds read them at both
    isolation levels. Every operation goes into a history, which is judged at the end. The exit code is 1 if there is an
    anomaly.
    """
    from proxy.judge.history import HistoryError

    if (history is None) == (bootstrap is None):
        raise typer.BadParameter("name either --bootstrap or --history")
    kept: Path | None
    try:
        if history is not None:
            verdict, kept = _judged(history, stuck_seconds), history
        else:
            options = VerifyOptions(
                bootstrap or "",
                seconds=seconds,
                seed=secrets.randbits(32) if seed is None else seed,
                topics=tuple(name.strip() for name in (topics or "").split(",") if name.strip()),
                partitions=partitions,
                replication_factor=replication_factor,
                diskless=diskless,
                transactions=transactions,
                consumer_protocol=consumer_protocol,
                rate=rate,
                producers=producers,
                record_bytes=record_bytes,
                delivery_timeout_seconds=delivery_timeout_seconds,
                grace_seconds=grace_seconds,
                stuck_seconds=stuck_seconds,
                client_settings=_client_settings(client_config),
            )
            verdict, kept = _run(options, write_history, keep_topics=keep_topics)
    except (HistoryError, VerifyError) as error:
        fail(str(error))
    _print(verdict, kept, as_json=as_json)
    raise typer.Exit(0 if verdict.ok else FAILED)


def _judged(history: Path, stuck_seconds: float) -> Verdict:
    from proxy.judge.history import History
    from proxy.judge.judge import judge

    return judge(History(history), stuck_seconds=stuck_seconds)


def _client_settings(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"cannot read {path}: {error}")
    settings = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = line.strip().partition("=")
        if name and not name.startswith("#"):
            if not equals:
                fail(f"{path}:{number}: no setting of the form name=value")
            settings[name.strip()] = value.strip()
    return settings


def _run(options: VerifyOptions, write_history: Path | None, *, keep_topics: bool) -> tuple[Verdict, Path | None]:
    """Run a load to its end. Return the verdict, and where its history is kept, if it is."""
    try:
        from proxy.verify.verification import Verification
    except ImportError as error:
        fail(f"{error.name} is not installed; install the extra: diskless-proxy[demo]")
    from proxy.demo.signals import end_signals

    with ExitStack() as leaving:
        kept = write_history
        if kept is None:
            folder = Path(tempfile.mkdtemp(prefix="diskless-proxy-verify-"))
            leaving.callback(_remove_if_empty, folder)
            kept = folder / "history.jsonl"
        running = Verification(options, kept)
        signals = leaving.enter_context(end_signals())
        leaving.enter_context(running)
        show = leaving.enter_context(_progress(running, signals))
        running.wait(signals.ended, show)
        verdict = running.finish(show)
        if verdict.ok and not keep_topics:
            running.delete_topics()
        if verdict.ok and write_history is None:
            kept.unlink()
            return verdict, None
        return verdict, kept


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def _progress(running: Verification, signals: EndSignals) -> Iterator[Callable[[], None]]:
    """Show on standard error how far the run is. A second signal ends it at once."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    began = time.monotonic()
    shown_phase, shown_at = "", 0.0

    def line() -> str:
        return (
            f"{time.monotonic() - began:5.0f} s  {running.phase}: {running.sent:,} sent, "
            f"{running.acknowledged:,} acknowledged, {running.read:,} read"
        )

    def stop_if_hurried() -> None:
        if signals.hurried.is_set():
            raise VerifyError("the run was ended before its verdict")

    if console.is_terminal:
        with console.status("starting") as status:

            def draw() -> None:
                stop_if_hurried()
                status.update(line())

            yield draw
        return

    def add() -> None:
        nonlocal shown_phase, shown_at
        stop_if_hurried()
        if running.phase != shown_phase or time.monotonic() - shown_at >= LINES_APART_SECONDS:
            shown_phase, shown_at = running.phase, time.monotonic()
            typer.echo(line(), err=True)

    yield add


def _print(verdict: Verdict, history: Path | None, *, as_json: bool) -> None:
    from proxy.judge import report

    if as_json:
        typer.echo(json.dumps({**report.as_json(verdict), "history": str(history) if history else None}))
        return
    typer.echo(report.text(verdict))
    if history is not None:
        typer.echo(f"History: {history}")
