"""The settings model, with one module per section of the file, and the code that reads the file."""

from __future__ import annotations

from proxy.config.brokers import Brokers
from proxy.config.journal import Journal
from proxy.config.limits import FetchSettings, Limits
from proxy.config.listeners import Admin, Listeners
from proxy.config.load import ConfigError, load_settings
from proxy.config.prices import Prices
from proxy.config.racks import Fleet, Racks
from proxy.config.replication import Replication
from proxy.config.rollups import Rollups
from proxy.config.security import BrokerSasl, BrokerTls, ListenerTls, SecurityProtocol
from proxy.config.settings import Settings
from proxy.config.stores import Garbage, Redis, Storage
from proxy.config.values import format_node_ids, parse_address, parse_node_ids

__all__ = [
    "Admin",
    "BrokerSasl",
    "BrokerTls",
    "Brokers",
    "ConfigError",
    "FetchSettings",
    "Fleet",
    "Garbage",
    "Journal",
    "Limits",
    "ListenerTls",
    "Listeners",
    "Prices",
    "Racks",
    "Redis",
    "Replication",
    "Rollups",
    "SecurityProtocol",
    "Settings",
    "Storage",
    "format_node_ids",
    "load_settings",
    "parse_address",
    "parse_node_ids",
]
