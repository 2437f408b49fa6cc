"""Presigned requests: proofs of an AWS role that services take in place of a password (Signature Version 4)."""

from __future__ import annotations

from collections.abc import Mapping

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

EXPIRY_S = 900
"""Time in which a proof may be used, as AWS's own clients set it; services take it once, at once."""


def presigned_url(
    url: str, parameters: Mapping[str, str], service: str, region: str, credentials: ReadOnlyCredentials
) -> str:
    """Return the URL of a GET with these parameters, signed in its query."""
    request = AWSRequest("GET", url, params=dict(parameters))
    SigV4QueryAuth(credentials, service, region, expires=EXPIRY_S).add_auth(request)
    return str(request.url)
