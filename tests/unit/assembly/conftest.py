"""Settings that name every section."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config import Settings, load_settings

_EVERYTHING = """\
rack: rack-a
listeners: {tls: {certificate_file: /tls.crt}}
brokers:
  bootstrap: ["127.0.0.1:9092"]
  security_protocol: SASL_SSL
  tls: {check_hostname: true}
  sasl: {username: proxy, password: secret}
redis: {url: "redis://127.0.0.1:6379"}
storage: {url: "file:///nowhere"}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "proxy.yaml"
    path.write_text(_EVERYTHING.replace("file:///nowhere", tmp_path.as_uri()))
    return load_settings(path)
