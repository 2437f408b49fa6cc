"""`diskless-proxy coordinator`: the servers of its store, the writes that the store has lost, and the remedy.

No proxy has to run; running proxies need no restart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy.console.console import FAILED, AsJson, ConfigFile, fail, output, progress, run_command

if TYPE_CHECKING:
    from proxy.guard.move import Moved
    from proxy.guard.unfence import Accepted
    from proxy.guard.verdict import Verdict

app = typer.Typer(
    help="The coordinator's store: its servers, its losses, and how to accept them.", no_args_is_help=True
)

DEFAULT_GAP = 1_000_000


@app.command("check")
def check(config: ConfigFile, as_json: AsJson = False) -> None:
    """Show the store's settings and each shard: its state, the kept state, whether it is fenced, and why.

    Exit code 1 if anything is wrong.
    """
    verdict = run_command(lambda: _examined(config))
    if as_json:
        typer.echo(json.dumps(_as_json(verdict)))
    else:
        _print(verdict)
    if not verdict.all_well:
        raise typer.Exit(FAILED)


@app.command("unfence")
def unfence(
    config: ConfigFile,
    shard: Annotated[
        int | None, typer.Option("--shard", min=0, help="One shard that `check` reports as fenced.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All fenced shards, and the registry.")] = False,
    gap: Annotated[
        int,
        typer.Option("--gap", min=0, max=1 << 40, help="Offsets to skip in each log in addition to the known loss."),
    ] = DEFAULT_GAP,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without a question.")] = False,
    as_json: AsJson = False,
) -> None:
    """Accept that records are lost, and let shards go on. No offset that is known to have been given is given again.

    First try to bring the store's newest data back: then nothing is lost, and the fence falls by itself.
    """
    if every == (shard is not None):
        fail("give either --shard NUMBER or --all")
    verdict = run_command(lambda: _choosable(config, shard))
    if not yes:
        _print(verdict)
        typer.echo(_WHAT_IS_LOST.format(gap=gap), err=True)
        typer.confirm("Go on?", abort=True, err=True)
    done = run_command(lambda: _accepted(config, shard, gap))
    if as_json:
        shards = {str(number): unfenced._asdict() for number, unfenced in done.shards.items()}
        document = {"shards": shards, "registry_version": done.registry_version, "identity_given": done.identity_given}
        typer.echo(json.dumps(document))
        return
    if done.identity_given:
        typer.echo("The store belongs to the objects under storage.url again.")
    if done.registry_version >= 0:
        typer.echo(f"The registry of diskless topics goes on from version {done.registry_version}.")
    for number, unfenced in done.shards.items():
        typer.echo(
            f"Shard {number} continues: {unfenced.raised} logs end {unfenced.raised_by} offsets further on, "
            f"{unfenced.made} were recreated."
        )


@app.command("nodes")
def nodes(config: ConfigFile, as_json: AsJson = False) -> None:
    """Show the store's servers: slots, shards, runs of scripts per second, CPU, memory, and how far replicas lag.

    Takes two looks, a second apart. No proxy has to run. Exit code 1 if a server does not answer.

    Example: `diskless-proxy coordinator nodes --config proxy.yaml`.
    """
    rows = run_command(lambda: _nodes(config))
    if as_json:
        typer.echo(json.dumps({"nodes": rows}))
    else:
        from proxy.cli.node_table import node_table

        output().print(node_table(rows))
    if any(row["problem"] for row in rows):
        raise typer.Exit(FAILED)


async def _nodes(config: Path) -> list[dict[str, Any]]:
    from proxy.admin.api.nodes import row
    from proxy.config import load_settings
    from proxy.coordinator.connect import connect
    from proxy.coordinator.nodes import Nodes

    settings = load_settings(config)
    client = await connect(settings.redis)
    try:
        return [row(node) for node in await Nodes(client, settings.redis).seen()]
    finally:
        await client.aclose()


@app.command("move")
def move(
    config: ConfigFile,
    to: Annotated[str, typer.Option("--to", help="Value of redis.url for the new store, which is empty.")],
    as_json: AsJson = False,
) -> None:
    """Build the coordinator's state in a new store, from the journal, while proxies go on with the present one.

    Change redis.url of all proxies after that, one after another. Create and delete no topics until all have changed.
    The command can be repeated: it applies what is new.

    Example: `diskless-proxy coordinator move --config proxy.yaml --to redis+cluster://10.0.0.1:6379,10.0.0.2:6379`.
    """
    moved = run_command(lambda: _moved(config, to))
    if as_json:
        typer.echo(json.dumps(moved._asdict()))
        return
    typer.echo(
        f"The new store has all {moved.partitions} partitions of the journal ({moved.applied_records:,} records were "
        f"applied after the snapshots, in {moved.seconds:.1f} s)."
    )
    typer.echo(
        "Next: set redis.url, and restart proxy after proxy. Create and delete no topics until all are restarted."
    )


async def _moved(config: Path, to: str) -> Moved:
    from proxy.config import load_settings
    from proxy.guard.move import move

    with progress("building", "partitions of the journal") as count:
        return await move(load_settings(config), to, count)


_WHAT_IS_LOST = """
What may be lost, if you go on:
- records that were acknowledged and whose coordinates the store does not have any more; their bytes are deleted from
  storage by the first sweep for orphans that begins garbage.orphan_age_ms from now or later;
- records, however old, that a merge or a compaction has moved since the state that the store has, if that was more than
  garbage.grace_ms ago: the objects that the store names are gone, and the new ones are deleted as those above. To have
  time for them, say no now, stop the jobs, set garbage.orphan_sweep_interval_ms to a year (31536000000) and reload all
  proxies; see docs/operations/lost-data.md;
- topics that were created, and configs that were changed, since the state that the store has; topics that were deleted
  since then may be back. What the brokers call a topic and the registry does not know is a classic topic from now on;
- what DeleteRecords and retention had removed since then may be listed again, and be unreadable: its objects are gone.
Idempotent producers go on: a batch that was kept is not stored again, and one that follows lost batches is accepted.
All logs of the shard end at least {gap} offsets further on: offsets that readers have seen are not given again.
"""


async def _examined(config: Path) -> Verdict:
    from proxy.config import load_settings
    from proxy.guard.verdict import examine, open_guarded

    async with open_guarded(load_settings(config)) as guarded:
        return await examine(guarded)


async def _choosable(config: Path, shard: int | None) -> Verdict:
    from proxy.guard.unfence import NothingToAccept, chosen

    verdict = await _examined(config)
    try:
        chosen(verdict, shard)
    except NothingToAccept as error:
        fail(str(error))
    return verdict


async def _accepted(config: Path, shard: int | None, gap: int) -> Accepted:
    from proxy.config import load_settings
    from proxy.guard.unfence import NothingToAccept, accept_loss
    from proxy.guard.verdict import open_guarded
    from proxy.housekeeping.accepted_loss import note_accepted_loss

    async with open_guarded(load_settings(config)) as guarded:
        await note_accepted_loss(guarded.storage)
        try:
            return await accept_loss(guarded, shard, gap)
        except NothingToAccept as error:
            fail(str(error))


def _as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "all_well": verdict.all_well,
        "unfit": verdict.unfit,
        "identity": verdict.identity,
        "storage_identity": verdict.storage_identity,
        "registry_version": verdict.registry_version,
        "registry_version_remembered": verdict.remembered.registry_change.version,
        "registry_version_seen": verdict.registry_version_seen,
        "why_registry_fenced": verdict.why_registry_fenced or None,
        "shards": [
            {
                "shard": one.shard,
                "incarnation": one.look.state.incarnation.hex(),
                "sequence": one.look.state.sequence,
                "logs": one.look.logs,
                "offsets_given": one.look.state.offsets,
                "remembered_incarnation": one.remembered.incarnation.hex(),
                "remembered_sequence": one.remembered.sequence,
                "offsets_lost": one.offsets_lost,
                "fenced": one.fenced,
                "why": one.look.why_fenced or None,
            }
            for one in verdict.shards
        ],
        "snapshots": [
            {
                "partition": one.partition,
                "journal_start": one.start,
                "journal_end": one.end,
                "positions": list(one.positions),
                "problem": one.problem,
            }
            for one in verdict.snapshots
        ],
    }


def _print(verdict: Verdict) -> None:
    from rich.table import Table

    console = output()
    table = Table("shard", "incarnation", "sequence", "remembered", "logs", "offsets given", "lost at least", "fenced")
    for one in verdict.shards:
        table.add_row(
            str(one.shard),
            one.look.state.incarnation.hex(),
            str(one.look.state.sequence),
            str(one.remembered.sequence),
            str(one.look.logs),
            str(one.look.state.offsets),
            str(one.offsets_lost) if one.fenced else "",
            one.look.why_fenced or "no",
        )
    console.print(table)
    console.print(f"settings, role and identity: {verdict.unfit or 'as they should be'}", markup=False)
    went_back = f", so changes are lost: {verdict.why_registry_fenced}" if verdict.registry_went_back else ""
    console.print(
        f"registry of diskless topics: version {verdict.registry_version}, highest known "
        f"{verdict.registry_version_seen}{went_back}"
    )
    if verdict.snapshots:
        kept = sum(1 for one in verdict.snapshots if one.positions)
        after = max(one.records_after for one in verdict.snapshots)
        console.print(
            f"snapshots: of {kept} of {len(verdict.snapshots)} partitions of the journal; a rebuild applies at most "
            f"{after} records of one partition"
        )
    for problem in filter(None, (snapshots.problem for snapshots in verdict.snapshots)):
        console.print(problem, markup=False)
