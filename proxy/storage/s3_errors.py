"""Texts for people when a bucket can't be used: the likely cause, and the remedy."""

from __future__ import annotations

import ssl

from aiohttp import ClientConnectorError, ClientSSLError
from botocore.exceptions import (
    BotoCoreError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)

from proxy.config import Storage

WRONG_KEY = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenRefreshRequired"}
WRONG_REGION = {"AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "301", "307"}
DENIED = {"AccessDenied", "AllAccessDisabled", "AccountProblem", "403"}
TAKEN = {"PreconditionFailed", "412"}
MISSING_KEY = {"NoSuchKey", "404"}
OUT_OF_RANGE = {"InvalidRange", "416"}
_REFUSED_OBJECT = {"AccessDenied", "InvalidObjectState", "403"}


class S3Error(Exception):
    """The store's own error answer. `code` is S3's name of it, or the HTTP status if the answer has no name.

    `operation` is that of the request, which may be one for credentials (AssumeRole, CreateSession).
    """

    def __init__(self, status: int, code: str, message: str, operation: str = "") -> None:
        super().__init__(f"{status} {code} {message}".rstrip())
        self.status = status
        self.code = code or str(status)
        self.message = message
        self.operation = operation


def is_refusal(error: S3Error) -> bool:
    """Return whether a GET of this object can't succeed, regardless of other objects, such as an error of its KMS
    key."""
    return error.code in _REFUSED_OBJECT or error.code.startswith("KMS.")


NO_CREDENTIALS = (
    "no credentials were found; set storage.access_key_id and storage.secret_access_key, "
    "or give the proxy an AWS profile or role"
)


_UNREADABLE = (FileNotFoundError, IsADirectoryError, PermissionError, ssl.SSLError)
"""Errors that reading the file of CAs may raise before any connection is made."""


def explain(error: Exception, settings: Storage, bucket: str) -> str:
    """One sentence with cause and remedy."""
    endpoint = settings.endpoint_url or f"Amazon S3 in {settings.region}"
    if isinstance(error, S3Error):
        return _explain_answer(error, settings, bucket, endpoint)
    if isinstance(error, (SSLError, ClientSSLError)):
        return (
            f"no TLS connection to {endpoint}: {_cause(error)}; where its CA is your own, name that CA's file in the "
            "environment variable AWS_CA_BUNDLE, as the system's CAs are not used; else see whether "
            "storage.endpoint_url has the host that is in its certificate, and a port with TLS"
        )
    if type(error) is HTTPClientError and isinstance(_cause(error), _UNREADABLE):
        return f"{endpoint}: {_cause(error)}; see whether AWS_CA_BUNDLE names a file with certificates, in PEM"
    if isinstance(error, (EndpointConnectionError, ConnectTimeoutError, ClientConnectorError)):
        return f"{endpoint} can't be reached; check storage.endpoint_url and the network, and that the store runs"
    if isinstance(error, (TimeoutError, ReadTimeoutError)):
        return (
            f"{endpoint} did not answer in {settings.request_timeout_ms} ms; check whether it is overloaded, or raise "
            "storage.request_timeout_ms"
        )
    return f"{endpoint}: {type(error).__name__} {error}".rstrip()


def _cause(error: Exception) -> object:
    """Return the cause of the S3 client's error, whose own text contains the URL of the object."""
    below = error.kwargs.get("error", error) if isinstance(error, BotoCoreError) else error
    return below.__cause__ or below


def _explain_answer(error: S3Error, settings: Storage, bucket: str, endpoint: str) -> str:
    if error.operation == "AssumeRole":
        return (
            f"AWS does not give the role {settings.role_arn} ({error.code}: {error.message}); correct storage.role_arn "
            "and storage.role_external_id, and let the role's trust policy name the proxy's own role or user"
        )
    if error.code.startswith("KMS.") or (error.code in DENIED and "kms:" in error.message.lower()):
        return (
            f"the KMS key of bucket {bucket} cannot be used ({error.message or error.code}); the key needs to be "
            "enabled, and the proxy's role needs kms:GenerateDataKey and kms:Decrypt on it"
        )
    if error.code in DENIED and error.operation == "CreateSession":
        return f"access to directory bucket {bucket} is denied; the key needs s3express:CreateSession on it"
    if error.code == "NoSuchBucket":
        return f"bucket {bucket} does not exist at {endpoint}; create it, or correct storage.url"
    if error.code in WRONG_KEY:
        return (
            f"{endpoint} refuses the key ({error.code}); correct storage.access_key_id and storage.secret_access_key, "
            "or the AWS profile or role"
        )
    if error.code in DENIED:
        return (
            f"access to bucket {bucket} is denied; the key needs s3:PutObject, s3:GetObject, s3:DeleteObject and "
            "s3:ListBucket on it"
        )
    if error.code in WRONG_REGION:
        return f"bucket {bucket} is not in region {settings.region} ({error.message}); correct storage.region"
    if error.code == "RequestTimeTooSkewed":
        return f"the clocks of this machine and of {endpoint} differ too much; set the time"
    return f"{endpoint} answered {error}"
