"""`diskless-proxy pipeline`: one file per job. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from pipeline.commands.jobs import app, run_command
from pipeline.commands.pack import pack
from pipeline.commands.schedule import schedule

__all__ = ["app", "run_command"]

app.command("run")(schedule)
app.command()(pack)
