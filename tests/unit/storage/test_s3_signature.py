"""Signatures against botocore's own."""

from __future__ import annotations

import datetime
from unittest.mock import patch

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from proxy.storage.s3_signature import Signer, quoted_key

NOW = datetime.datetime(2026, 1, 31, 23, 59, 58, tzinfo=datetime.UTC)
text = st.text("abcXYZ019-_.~", min_size=1, max_size=20)


@given(
    method=st.sampled_from(["PUT", "GET", "HEAD"]),
    key=st.text("aZ9-_.~ /+=ä%&", min_size=1, max_size=20),
    headers=st.dictionaries(st.sampled_from(["range", "if-none-match", "x-amz-meta-upload"]), text),
    token=st.one_of(st.just(""), text),
    secret=text,
)
def test_as_botocore_signs(method, key, headers, token, secret):
    path = f"/bucket/{quoted_key(key)}"
    signed = Signer("key-id", secret, token, "eu-west-1", "store:8333").sign(
        method, path, headers, NOW.strftime("%Y%m%dT%H%M%SZ")
    )
    request = AWSRequest(method, f"http://store:8333{path}", headers=dict(headers))
    request.context["client_config"] = Config(s3={"payload_signing_enabled": False})
    with patch("botocore.auth.get_current_datetime", return_value=NOW):
        S3SigV4Auth(Credentials("key-id", secret, token or None), "s3", "eu-west-1").add_auth(request)
    assert signed == {"host": "store:8333"} | {name.lower(): value for name, value in request.headers.items()}


def test_the_key_follows_the_day():
    used, fresh = (Signer("key-id", "secret", "", "eu-west-1", "store") for _ in range(2))
    used.sign("GET", "/x", {}, "20260131T235959Z")
    assert used.sign("GET", "/x", {}, "20260201T000000Z") == fresh.sign("GET", "/x", {}, "20260201T000000Z")
