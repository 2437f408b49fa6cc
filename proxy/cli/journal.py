"""`diskless-proxy journal`: begin a journal for data that exist, or end the journal of a deployment.

All proxies and jobs have to be stopped. What is done is explained in docs/journal.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.console.console import AsJson, ConfigFile, run_command

if TYPE_CHECKING:
    from proxy.guard.journal_loss import Restored

app = typer.Typer(help="The journal: begin it for data that exist, or end it.", no_args_is_help=True)

DEFAULT_GAP = 1_000_000_000
"""More offsets than a shard gives between two snapshots."""
Yes = Annotated[bool, typer.Option("--yes", help="Do it without a question.")]


@app.command("begin")
def begin(
    config: ConfigFile,
    from_snapshots: Annotated[
        bool,
        typer.Option("--from-snapshots", help="The store lost data with the journal: go back to the snapshots."),
    ] = False,
    gap: Annotated[
        int,
        typer.Option("--gap", min=0, max=1 << 40, help="With --from-snapshots, offsets to skip in each log."),
    ] = DEFAULT_GAP,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let a new journal hold the order of the writes, and begin it with the data that the store has.

    For a deployment with `journal.mode: off`, and for one whose journal has lost records or was deleted. Stop all
    proxies and jobs first. It can be repeated after it was broken off.
    """
    if not yes:
        typer.echo(_WHAT_IS_LOST.format(gap=gap) if from_snapshots else _WHAT_BEGINS, err=True)
        typer.confirm("Go on?", abort=True, err=True)
    topic, restored = run_command(lambda: _begun(config, gap if from_snapshots else None))
    if as_json:
        parts = [one._asdict() for one in restored]
        typer.echo(json.dumps({"topic": topic, "mode": "required", "restored": parts}))
        return
    for partition, one in enumerate(restored):
        name = "registry" if partition == len(restored) - 1 else f"shard {partition}"
        typer.echo(f"{name}: {one.position} records, {'from a snapshot' if one.from_snapshot else 'as in the store'}")
    typer.echo(f"The journal {topic} begins with the data of the store. Set journal.mode: required everywhere.")


@app.command("end")
def end(config: ConfigFile, yes: Yes = False, as_json: AsJson = False) -> None:
    """Let the store alone hold the order of the writes again, after it has applied all records of the journal.

    Stop all proxies and jobs first. It can be repeated after it was broken off.
    """
    if not yes:
        typer.echo(_WHAT_ENDS, err=True)
        typer.confirm("Go on?", abort=True, err=True)
    topic = run_command(lambda: _ended(config))
    text = f"The store holds the order. Set journal.mode: off everywhere, and delete the topic {topic}."
    typer.echo(json.dumps({"topic": topic, "mode": "off"}) if as_json else text)


_WHAT_BEGINS = """
The new journal begins with what the store has now. If the deployment had a journal that lost records, the store may
lack the newest of them: `diskless-proxy coordinator check` compares what it can. Have a backup of the store.
"""
_WHAT_IS_LOST = """
What the journal and the store had after the newest snapshots is lost, if you go on: acknowledged records, topics that
were created and configs that were changed since. Records that a merge or a compaction has moved since may be
unreadable; to have time for them, see docs/operations/lost-data.md. Each log goes on {gap} offsets further: offsets
that readers have seen are not given again.
"""
_WHAT_ENDS = """
Without a journal, the store must be a database that loses nothing: a restart without its data, or a failover to a
replica that was behind, loses acknowledged records. See docs/operations/redis.md for the settings that it needs.
"""


async def _begun(config: Path, gap: int | None) -> tuple[str, list[Restored]]:
    from proxy.config import load_settings
    from proxy.guard.journal_change import begin_journal, opened_change, restore
    from proxy.housekeeping.accepted_loss import note_accepted_loss

    restored = []
    async with opened_change(load_settings(config), create_missing=True, emptied=gap is not None) as change:
        if gap is not None:
            await note_accepted_loss(change.storage)
            restored = await restore(change, gap)
        await begin_journal(change)
        return change.settings.journal.topic, restored


async def _ended(config: Path) -> str:
    from proxy.config import load_settings
    from proxy.guard.journal_change import end_journal, opened_change

    async with opened_change(load_settings(config), create_missing=False) as change:
        await end_journal(change)
        return change.settings.journal.topic
