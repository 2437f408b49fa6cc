"""The expiry of an X.509 certificate, the only field of it that is read here (RFC 5280, section 4.1.2.5).

The standard library returns it only for peers' certificates, not for one's own.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime

from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import parsing

_SEQUENCE, _INTEGER, _VERSION = 0x30, 0x02, 0xA0
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def first_expiry(pem: str) -> datetime | None:
    """Return the earliest expiry of the certificates in a PEM text, in UTC; None if there is no certificate.

    Raises ProtocolError for a malformed certificate.
    """
    ends = []
    for text in _PEM.findall(pem):
        try:
            der = ssl.PEM_cert_to_DER_cert(text)
        except ValueError as error:
            raise ProtocolError("a certificate is not base64") from error
        ends.append(not_after(der))
    return min(ends, default=None)


@parsing
def not_after(der: bytes) -> datetime:
    """Return the end of a DER certificate's validity, in UTC. Raises ProtocolError."""
    _, at, _ = _element(der, 0, _SEQUENCE)  # the certificate
    _, at, _ = _element(der, at, _SEQUENCE)  # what is signed of it
    tag, _, end = _element(der, at)
    if tag == _VERSION:
        at = end
    for expected in (_INTEGER, _SEQUENCE, _SEQUENCE):  # serial number, signature algorithm, issuer
        _, _, at = _element(der, at, expected)
    _, at, _ = _element(der, at, _SEQUENCE)  # validity
    _, _, at = _element(der, at)  # its beginning
    tag, start, end = _element(der, at)
    text = str(der[start:end], "utf-8")
    try:
        if tag == _UTC_TIME:
            # Two digits from 50 on are of the last century, whatever strptime makes of them.
            century = "19" if text[:2] >= "50" else "20"
            return datetime.strptime(century + text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
        if tag == _GENERALIZED_TIME:
            return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise ProtocolError("a certificate's end is no time") from error
    raise ProtocolError("a certificate's end is no time")


def _element(der: bytes, at: int, expected: int | None = None) -> tuple[int, int, int]:
    """Tag, start and end of the contents of the element at a position."""
    tag, length = der[at], der[at + 1]
    at += 2
    if expected is not None and tag != expected:
        raise ProtocolError("this is not a certificate")
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= 4:
            raise ProtocolError("a certificate has an element of unknown length")
        length = int.from_bytes(der[at : at + count], "big")
        at += count
    if at + length > len(der):
        raise ProtocolError("the certificate ends too early")
    return tag, at, at + length
