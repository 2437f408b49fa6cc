"""The part of an Amazon MSK broker that checks IAM: AWS_MSK_IAM payloads, and the tokens of AWS's signers. Also tokens
of users of ElastiCache and MemoryDB.

It is written from the documentation of Signature Version 4 and of aws-msk-iam-auth, and shares no code with the proxy
or botocore. `stand_in` serves SaslHandshake and SaslAuthenticate on a socket.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, quote, urlsplit

from proxy.protocol.api_keys import SASL_AUTHENTICATE, SASL_HANDSHAKE

_EMPTY_BODY = hashlib.sha256(b"").hexdigest()
_FAILED, _UNSUPPORTED = 58, 33
_REQUIRED = ("action", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signedheaders", "x-amz-signature")
_AS_SIGNED = {
    "action": "Action",
    "x-amz-algorithm": "X-Amz-Algorithm",
    "x-amz-credential": "X-Amz-Credential",
    "x-amz-date": "X-Amz-Date",
    "x-amz-expires": "X-Amz-Expires",
    "x-amz-security-token": "X-Amz-Security-Token",
    "x-amz-signedheaders": "X-Amz-SignedHeaders",
    "user": "User",
}


class Denied(Exception):
    """The text is the broker's error message."""


@dataclass
class Iam:
    """Roles that may connect, and the broker's own place."""

    region: str
    host: str
    secrets: Mapping[str, str]
    """Secret keys by access key ID."""
    session_tokens: Mapping[str, str] = field(default_factory=dict)
    """Session tokens by access key ID, for temporary credentials."""
    service: str = "kafka-cluster"
    action: str = "kafka-cluster:Connect"

    def check_payload(self, payload: bytes) -> str:
        """Return the access key ID that an AWS_MSK_IAM payload proves. Raises Denied."""
        fields = json.loads(payload)
        if fields.get("version") != "2020_10_22":
            raise Denied("the payload has no known version")
        if fields.get("host") != self.host or not fields.get("user-agent"):
            raise Denied("the payload is for another host, or has no user agent")
        return self._check({name: str(value) for name, value in fields.items()}, self.host)

    def check_token(self, token: str) -> str:
        """Return the access key ID that the token of one of AWS's signers proves (OAUTHBEARER). Raises Denied."""
        url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
        host = f"kafka.{self.region}.amazonaws.com"
        if (url.scheme, url.netloc, url.path) != ("https", host, "/"):
            raise Denied("the token is not for this region")
        return self._check({name.lower(): value for name, value in parse_qsl(url.query)}, host)

    def check_password(self, user: str, password: str) -> str:
        """Return the access key ID that the token of a user of ElastiCache or MemoryDB proves. Raises Denied."""
        url = urlsplit(f"http://{password}")
        fields = {name.lower(): value for name, value in parse_qsl(url.query)}
        if (url.netloc, url.path, fields.get("user")) != (self.host, "/", user):
            raise Denied("the token is for another cache, or for another user")
        return self._check(fields, self.host)

    def _check(self, fields: Mapping[str, str], host: str) -> str:
        if missing := [name for name in _REQUIRED if name not in fields]:
            raise Denied(f"{missing} are missing")
        if fields["action"] != self.action or fields["x-amz-signedheaders"] != "host":
            raise Denied("another action, or other headers")
        key_id, date, region, service, kind = fields["x-amz-credential"].split("/")
        if (region, service, kind) != (self.region, self.service, "aws4_request") or key_id not in self.secrets:
            raise Denied("the credential is not one of this region and service")
        if fields.get("x-amz-security-token") != self.session_tokens.get(key_id):
            raise Denied("the session token is not that of the key")
        signed_at = datetime.strptime(fields["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        lifetime = timedelta(seconds=int(fields["x-amz-expires"]))
        now = datetime.now(UTC)
        if date != f"{signed_at:%Y%m%d}" or not signed_at - timedelta(minutes=5) <= now <= signed_at + lifetime:
            raise Denied("the signature has expired")
        expected = self._signature(fields, host, key_id, date)
        if not hmac.compare_digest(expected, fields["x-amz-signature"]):
            raise Denied("the signature is wrong")
        return key_id

    def _signature(self, fields: Mapping[str, str], host: str, key_id: str, date: str) -> str:
        query = "&".join(
            f"{quote(name, safe='-_.~')}={quote(fields[lower], safe='-_.~')}"
            for lower, name in sorted(_AS_SIGNED.items(), key=lambda pair: pair[1])
            if lower in fields
        )
        request = f"GET\n/\n{query}\nhost:{host}\n\nhost\n{_EMPTY_BODY}"
        scope = fields["x-amz-credential"].partition("/")[2]
        hashed = hashlib.sha256(request.encode()).hexdigest()
        to_sign = f"AWS4-HMAC-SHA256\n{fields['x-amz-date']}\n{scope}\n{hashed}"
        key = f"AWS4{self.secrets[key_id]}".encode()
        for part in (date, self.region, self.service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return hmac.digest(key, to_sign.encode(), "sha256").hex()


@asynccontextmanager
async def stand_in(iam: Iam, *, lifetime_ms: int = 0) -> AsyncIterator[tuple[int, list[str]]]:
    """Serve the broker's part on a port of 127.0.0.1; yield the port, and the key IDs that were let in."""
    let_in: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                answer = _answer(iam, await reader.readexactly(size), lifetime_ms, let_in)
                writer.write(struct.pack(">i", len(answer)) + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], let_in
    finally:
        server.close()


def _answer(iam: Iam, frame: bytes, lifetime_ms: int, let_in: list[str]) -> bytes:
    api_key, _, correlation_id, client_id = struct.unpack_from(">hhih", frame)
    body = frame[10 + max(0, client_id) :]
    head = struct.pack(">i", correlation_id)
    if api_key == SASL_HANDSHAKE:
        offered = b"AWS_MSK_IAM"
        error = 0 if body[2:] == offered else _UNSUPPORTED
        return head + struct.pack(">hi", error, 1) + struct.pack(">h", len(offered)) + offered
    assert api_key == SASL_AUTHENTICATE, api_key
    try:
        let_in.append(iam.check_payload(body[4:]))
    except Denied as denied:
        text = str(denied).encode()
        return head + struct.pack(">hh", _FAILED, len(text)) + text + struct.pack(">iq", 0, 0)
    answer = json.dumps({"version": "2020_10_22", "request-id": "some-id"}).encode()
    return head + struct.pack(">hhi", 0, -1, len(answer)) + answer + struct.pack(">q", lifetime_ms)
