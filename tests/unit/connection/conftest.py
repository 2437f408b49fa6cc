"""Tests of connections run with the express lane, and once more with the ordinary path alone."""

from __future__ import annotations

import pytest

from tests.tiers import Tier
from tests.unit import connection_double

DOUBLES = ("connected", "Sent")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a module that uses the double twice, unless the module compares the two ways itself.

    The quick tier runs them with the lane only.
    """
    if any(hasattr(metafunc.module, name) for name in DOUBLES) and not hasattr(metafunc.module, "Twins"):
        metafunc.fixturenames.insert(0, "express_lane")
        lanes = {"lane": True} if metafunc.config.getoption("tier") == Tier.QUICK else {"lane": True, "ordinary": False}
        metafunc.parametrize("express_lane", lanes.values(), ids=lanes, indirect=True)


@pytest.fixture
def express_lane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give connections the lane, or not."""
    monkeypatch.setattr(connection_double, "EXPRESS_LANE", request.param)
