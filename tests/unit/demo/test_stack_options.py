"""Options that a stack rejects before it starts anything."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.demo.errors import StackError
from proxy.demo.stack import Stack, StackOptions


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"racks": ()}, "different racks"),
        ({"racks": ("rack-a", "rack-a")}, "different racks"),
        ({"brokers_per_rack": 4}, "choose fewer brokers_per_rack"),
        ({"brokers_per_rack": 0}, "1 to 9 brokers"),
        ({"proxies_per_rack": 5}, "choose fewer proxies_per_rack"),
    ],
)
def test_more_servers_than_ports_are_rejected(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(StackError, match=complaint):
        Stack(StackOptions(**options))


@pytest.mark.parametrize("options", [{}, {"brokers_per_rack": 3}, {"brokers_per_rack": 2, "proxies_per_rack": 4}])
def test_as_many_servers_as_ports_are_accepted(options: dict[str, Any]) -> None:
    assert Stack(StackOptions(**options)).options.brokers_per_rack in (1, 2, 3)
