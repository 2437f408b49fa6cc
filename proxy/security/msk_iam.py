"""AWS_MSK_IAM: the proxy proves to brokers of Amazon MSK that it has a role of AWS.

The payload is a presigned request, as the fields of a JSON object, for the action `kafka-cluster:Connect` at the
broker's host (AWS Signature Version 4, signed query). It follows aws-msk-iam-auth (`AWS4SignedPayloadGenerator`),
version 2020_10_22. The signature names the host that the client connects to, so this mechanism of a *client* cannot
pass through a proxy; the tokens that AWS's signers make for OAUTHBEARER name a regional host, and do.
"""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qsl, urlsplit

from botocore.credentials import ReadOnlyCredentials

from proxy.aws.presigned import presigned_url
from proxy.security.sasl import SaslError

VERSION = "2020_10_22"
ACTION = "kafka-cluster:Connect"
_SERVICE = "kafka-cluster"
_USER_AGENT = "diskless-proxy"
_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.(?:amazonaws\.com(?:\.cn)?|api\.aws)$")


def region_of(host: str) -> str:
    """Return the region in the name of a broker of MSK; empty if the name is another one."""
    found = _HOST.search(host.lower())
    return found[1] if found else ""


class MskIam:
    """One authentication at the broker of a host."""

    def __init__(self, host: str, region: str, credentials: ReadOnlyCredentials) -> None:
        self._payload: bytes | None = build_payload(host, region, credentials)

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the token, as SaslMechanism. The broker's answer to it is a JSON object with its version."""
        if self._payload is not None:
            payload, self._payload = self._payload, None
            return payload
        if not challenge:
            raise SaslError(
                "the broker's answer to AWS_MSK_IAM is empty; see whether brokers.bootstrap is a port of MSK"
            )
        return None


def build_payload(host: str, region: str, credentials: ReadOnlyCredentials) -> bytes:
    """Return the JSON object that a broker of that host and region accepts."""
    url = presigned_url(f"https://{host}/", {"Action": ACTION}, _SERVICE, region, credentials)
    signed = {name.lower(): value for name, value in parse_qsl(urlsplit(url).query)}
    fields = {"version": VERSION, "host": host, "user-agent": _USER_AGENT, **signed}
    return json.dumps(fields, separators=(",", ":")).encode()
