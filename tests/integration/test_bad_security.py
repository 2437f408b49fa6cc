"""Run `diskless-proxy run` with unusable TLS and SASL settings: one line, without any secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.support.bad_start import Ports, command, refusal


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            {"listeners": {"tls": {"certificate_file": "{here}/none.pem", "key_password": "hush"}}},
            "listeners.tls.certificate_file: can't read {here}/none.pem: No such file or directory; name a file",
        ),
        (
            {"listeners": {"tls": {"certificate_file": "{here}/one.pem", "key_file": "{here}/two.pem"}}},
            "listeners.tls.key_file: the key in {here}/two.pem does not belong to the certificate in {here}/one.pem",
        ),
        (
            {
                "brokers": {
                    "security_protocol": "SASL_SSL",
                    "tls": {"ca_file": "{here}/none.pem"},
                    "sasl": {"username": "proxy", "password": "hush"},
                }
            },
            "brokers.tls.ca_file: can't read {here}/none.pem",
        ),
        (
            {
                "listeners": {
                    "tls": {
                        "certificate_file": "{here}/one.pem",
                        "client_ca_file": "{here}/one.pem",
                        "client_auth": "required",
                    }
                }
            },
            "listeners.tls.client_auth is required, but with security_protocol PLAINTEXT no broker sees the clients'",
        ),
        ({"brokers": {"sasl": {"username": "proxy", "password": "hush"}}}, "sasl has no effect with security_protocol"),
    ],
)
def test_unusable_settings_are_rejected_at_the_start(tmp_path: Path, overrides: dict[str, Any], expected: str) -> None:
    ca = trustme.CA()
    for name in ("one", "two"):
        ca.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / f"{name}.pem"))
    line = refusal(command(tmp_path, Ports(), filled(overrides, str(tmp_path))))
    assert expected.replace("{here}", str(tmp_path)) in line
    assert "hush" not in line


def filled(value: Any, here: str) -> Any:
    """Replace the folder's placeholder in all texts."""
    if isinstance(value, dict):
        return {name: filled(one, here) for name, one in value.items()}
    return value.replace("{here}", here)
