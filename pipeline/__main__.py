"""The entry point for spark-submit: the same as `diskless-proxy pipeline`."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # As a script, this folder comes first where modules are looked for, and has names that others may have, too.
    here = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != here]
    from pipeline.commands import app

    app(prog_name="diskless-proxy pipeline")
