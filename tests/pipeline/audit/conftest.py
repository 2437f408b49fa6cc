"""A healthy store, and helpers that damage it."""

from __future__ import annotations

import asyncio

import pytest

from proxy.config import Settings
from tests.pipeline.audit.healthy import Hands, healthy


@pytest.fixture
def hands(light_settings: Settings) -> Hands:
    return Hands(light_settings, asyncio.run(healthy(light_settings)))
