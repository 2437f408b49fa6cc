"""The end of a certificate, compared with the library that wrote it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from proxy.security.certificate import first_expiry, not_after
from proxy.wire.errors import ProtocolError

CA = trustme.CA()
DER = x509.load_pem_x509_certificate(CA.cert_pem.bytes()).public_bytes(Encoding.DER)


@pytest.mark.parametrize("year", [1970, 1999, 2000, 2026, 2049, 2050, 2999])
def test_the_end_is_the_librarys(year: int) -> None:
    end = datetime(year, 7, 5, 4, 3, 2, tzinfo=UTC)
    issued = CA.issue_cert("localhost", not_before=end - timedelta(days=1), not_after=end)
    pem = issued.cert_chain_pems[0].bytes()
    assert not_after(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)) == end
    assert first_expiry(pem.decode()) == end


def test_the_first_of_a_chain_to_end_counts() -> None:
    soon = datetime(2030, 1, 1, tzinfo=UTC)
    issued = CA.issue_cert("localhost", not_after=soon).cert_chain_pems[0].bytes().decode()
    assert first_expiry(f"{CA.cert_pem.bytes().decode()}\n{issued}") == soon
    assert first_expiry("no certificate") is None


def test_invalid_certificates() -> None:
    with pytest.raises(ProtocolError):
        first_expiry("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(ProtocolError):
        first_expiry("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n")


@given(st.integers(0, len(DER) - 1), st.integers(0, 255))
def test_any_bytes_are_read_or_rejected(place: int, value: int) -> None:
    changed = DER[:place] + bytes([value]) + DER[place + 1 :]
    for der in (changed, DER[:place]):
        try:
            assert isinstance(not_after(der), datetime)
        except ProtocolError:
            pass
