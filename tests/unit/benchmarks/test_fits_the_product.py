"""The benchmarks fit the product: they import what it has, and find its handler of Metadata."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import cast

import pytest

import benchmarks

MODULES = sorted(path.stem for path in Path(cast(str, benchmarks.__file__)).parent.glob("[a-z]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_imports_only_names_that_exist(name: str) -> None:
    import_module(f"benchmarks.{name}")


def test_wire_calls_the_handler_of_metadata() -> None:
    wire = import_module("benchmarks.wire")
    wire.Asking(wire.metadata_body(), 500, "sticky")()
