"""Names of sockets."""

from __future__ import annotations

import uuid

import pytest


@pytest.fixture
def name() -> str:
    return f"diskless-proxy-test/{uuid.uuid4().hex}"
