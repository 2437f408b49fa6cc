"""`diskless-proxy journal`: begin a journal for data that exist, or end the journal of a deployment.

All proxies and jobs have to be stopped. What is done is explained in docs/journal.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from proxy.console.console import AsJson, ConfigFile, run_command

app = typer.Typer(help="The journal: begin it for data that exist, or end it.", no_args_is_help=True)

Yes = Annotated[bool, typer.Option("--yes", help="Do it without a question.")]


@app.command("begin")
def begin(config: ConfigFile, yes: Yes = False, as_json: AsJson = False) -> None:
    """Let a new journal hold the order of the writes, and begin it with the data that the store has.

    For a deployment with `journal.mode: off`, and for one whose journal has lost records or was deleted. Stop all
    proxies and jobs first. It can be repeated after it was broken off.
    """
    if not yes:
        typer.echo(_WHAT_BEGINS, err=True)
        typer.confirm("Go on?", abort=True, err=True)
    topic = run_command(lambda: _begun(config))
    text = f"The journal {topic} begins with the data of the store. Set journal.mode: required everywhere."
    typer.echo(json.dumps({"topic": topic, "mode": "required"}) if as_json else text)


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
_WHAT_ENDS = """
Without a journal, the store must be a database that loses nothing: a restart without its data, or a failover to a
replica that was behind, loses acknowledged records. See docs/operations/redis.md for the settings that it needs.
"""


async def _begun(config: Path) -> str:
    from proxy.config import load_settings
    from proxy.guard.journal_change import begin_journal, opened_change

    async with opened_change(load_settings(config), create_missing=True) as change:
        await begin_journal(change)
        return change.settings.journal.topic


async def _ended(config: Path) -> str:
    from proxy.config import load_settings
    from proxy.guard.journal_change import end_journal, opened_change

    async with opened_change(load_settings(config), create_missing=False) as change:
        await end_journal(change)
        return change.settings.journal.topic
