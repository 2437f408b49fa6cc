"""AWS Signature Version 4 for S3 requests whose payload is not signed. Sans-io.

As "Authenticating Requests: Using the Authorization Header" of the Amazon S3 API reference. The signing key depends on
the day only, so it is derived once a day.
"""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import quote

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"


def quoted_key(key: str) -> str:
    """An object key as it stands in the URL and in what is signed."""
    return quote(key, safe="/-_.~")


class Signer:
    """Signs requests to one host with one key. `token`: of temporary credentials, else empty."""

    __slots__ = ("_access_key_id", "_day", "_host", "_key", "_region", "_secret_access_key", "_token")

    def __init__(self, access_key_id: str, secret_access_key: str, token: str, region: str, host: str) -> None:
        self._access_key_id = access_key_id
        self._secret_access_key = secret_access_key
        self._token = token
        self._region = region
        self._host = host
        self._day = ""
        self._key = b""

    def sign(self, method: str, path: str, headers: dict[str, str], now: str) -> dict[str, str]:
        """`headers` and those that the signature adds.

        `path`: quoted, without a query. `headers`: names in lower case, all of which get signed. `now`: the time in UTC
        as `20260131T235959Z`.
        """
        signed = {**headers, "host": self._host, "x-amz-content-sha256": UNSIGNED_PAYLOAD, "x-amz-date": now}
        if self._token:
            signed["x-amz-security-token"] = self._token
        names = sorted(signed)
        joined_names = ";".join(names)
        lines = "".join([f"{name}:{signed[name]}\n" for name in names])
        request = f"{method}\n{path}\n\n{lines}\n{joined_names}\n{UNSIGNED_PAYLOAD}"
        day = now[:8]
        if day != self._day:
            self._day, self._key = day, self._signing_key(day)
        scope = f"{day}/{self._region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        signature = hmac.digest(self._key, text.encode(), "sha256").hex()
        signed["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._access_key_id}/{scope}, SignedHeaders={joined_names}, "
            f"Signature={signature}"
        )
        return signed

    def _signing_key(self, day: str) -> bytes:
        key = f"AWS4{self._secret_access_key}".encode()
        for part in (day, self._region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return key
