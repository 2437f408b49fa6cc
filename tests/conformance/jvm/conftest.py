"""The JVMs that the tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.java_tools import JavaTools, compile_launcher


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What runs tools one after the other, compiled."""
    return compile_launcher(tmp_path_factory.mktemp("launcher"))


@pytest.fixture(scope="session")
def tools(launcher: Path) -> Iterator[JavaTools]:
    """The tools of the newest Kafka."""
    with JavaTools(launcher) as running:
        yield running
