"""Batch jobs over the objects of diskless topics, and their records as a Spark data source.

The folder `commands` holds the commands of the command line. Each job has a folder of its own with `job.py` in it:
`run(context, options) -> report`. The modules next to these folders are shared: the Spark session, tasks, progress,
stores, reading. No module in here imports sockets or the proxy's servers, and importing the package itself loads
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.source.source import DisklessDataSource

__all__ = ["DisklessDataSource"]


def __getattr__(name: str) -> Any:
    """Return the data source, loaded when it is asked for: it needs the extra `[pipeline]`."""
    if name == "DisklessDataSource":
        from pipeline.source.source import DisklessDataSource

        return DisklessDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
