"""`diskless-proxy pipeline pack`: what executors of a cluster need, in one archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from proxy.console.console import AsJson, fail, progress


def pack(
    archive: Annotated[Path, typer.Argument(help="The archive to write: packages.tar.gz.")], as_json: AsJson = False
) -> None:
    """Pack this release, and the packages that it needs on executors, for spark-submit's --archives.

    The nodes of the cluster then need no more than Spark, and Python in the same minor version as here.
    """
    from pipeline import packing
    from pipeline.errors import PipelineError
    from pipeline.units import bytes_text

    try:
        with progress("packing", "files") as counted:
            packed = packing.pack(archive, counted)
    except PipelineError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{archive}: {error.strerror or error}; name a file in a directory that can be written to")
    if as_json:
        figures = {"packages": packed.packages, "files": packed.files, "bytes": packed.size_bytes}
        typer.echo(json.dumps({"archive": str(archive), **figures}))
        return
    typer.echo(f"{archive}: {packed.packages} packages, {packed.files:,} files, {bytes_text(packed.size_bytes)}")
