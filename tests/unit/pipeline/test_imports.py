from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pyspark", "pyarrow", "pandas", "numpy", "aiokafka", "aiobotocore")


@pytest.mark.parametrize("module", ["pipeline", "pipeline.commands", "pipeline.tasks", "pipeline.session"])
def test_the_import_loads_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {name.partition(".")[0] for name in loaded} & set(HEAVY)


def test_the_demo_is_not_imported() -> None:
    program = "import sys, pipeline.session, pipeline.stores, pipeline.source.source; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if name.startswith("proxy.demo")]


def test_without_spark_the_command_names_the_extra_to_install() -> None:
    program = "import proxy.cli as cli; cli.find_spec = lambda name: None; cli.main()"
    command = [sys.executable, "-c", program, "pipeline", "merge", "--config", "proxy.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: pyspark is not installed; install the extra: diskless-proxy[pipeline]\n"
