"""The S3 client's configuration and credentials, by the settings.

Behaviour:
- No signature version is forced: a directory bucket (S3 Express One Zone, `name--zone--x-s3`) takes requests of a
  session only, which the client requests and renews by itself (CreateSession).
- In us-east-1 the endpoint is the regional one. The client's own default there is the global one, which an interface
  endpoint and a policy that names the region do not cover.
- Over TLS, the signature leaves out the content of objects: hashing it takes a third of a PUT's CPU.
- Requests name this program. The client's own text, with its features and platform, is put together again for each
  request, which takes a sixth of a small PUT's CPU.
- With `storage.endpoint_url`, requests name the bucket in the path, which every store and interface endpoints take.
  Directory buckets are an exception.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioAssumeRoleCredentialFetcher, AioDeferredRefreshableCredentials
from aiobotocore.session import AioSession, get_session

from proxy import __version__
from proxy.config import Storage
from proxy.storage.interface import StorageError
from proxy.storage.s3_errors import NO_CREDENTIALS

_DIRECTORY_BUCKET = "--x-s3"
USER_AGENT = f"diskless-proxy/{__version__}"
_SESSION_NAME = "diskless-proxy"
"""Name of the role's sessions, as AWS's own logs show them."""


def is_directory_bucket(bucket: str) -> bool:
    """Return True if the bucket is one of S3 Express One Zone."""
    return bucket.endswith(_DIRECTORY_BUCKET)


def is_unsigned(settings: Storage) -> bool:
    """Return whether signatures leave out the content of objects."""
    with_tls = not settings.endpoint_url.lower().startswith("http://")
    return settings.unsigned_payload == "always" or (settings.unsigned_payload == "tls" and with_tls)


def client_config(settings: Storage, bucket: str) -> AioConfig:
    """Return the configuration of the client."""
    request_seconds = settings.request_timeout_ms / 1000
    in_path = bool(settings.endpoint_url) and not is_directory_bucket(bucket)
    return AioConfig(
        user_agent=USER_AGENT,
        connect_timeout=request_seconds,
        read_timeout=request_seconds,
        max_pool_connections=settings.max_connections,
        retries={"total_max_attempts": settings.max_attempts, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={
            "addressing_style": "path" if in_path else "auto",
            "us_east_1_regional_endpoint": "regional",
            "payload_signing_enabled": not is_unsigned(settings),
        },
    )


def upload_parameters(settings: Storage) -> dict[str, Any]:
    """Return the parameters of every upload that the settings add."""
    if not settings.kms_key_id:
        return {}
    # With a bucket key, S3 requests a data key from KMS now and then, and not for each object.
    return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": settings.kms_key_id, "BucketKeyEnabled": True}


async def open_session(settings: Storage) -> AioSession:
    """Return a session with credentials: keys, the AWS chain, or a role that either of these takes on.

    Raises StorageError if there are none.
    """
    session = get_session()
    if settings.access_key_id or settings.secret_access_key:
        session.set_credentials(settings.access_key_id, settings.secret_access_key)
    credentials = await session.get_credentials()
    if credentials is None:
        raise StorageError(f"storage.url {settings.url}: {NO_CREDENTIALS}")
    if not settings.role_arn:
        return session
    external = {"ExternalId": settings.role_external_id} if settings.role_external_id else {}
    fetcher = AioAssumeRoleCredentialFetcher(
        client_creator=partial(session.create_client, region_name=settings.region),
        source_credentials=credentials,
        role_arn=settings.role_arn,
        extra_args={"RoleSessionName": _SESSION_NAME, **external},
    )
    of_role = get_session()
    of_role.register_component("credential_provider", _Role(fetcher))
    return of_role


class _Role:
    """A session's provider of credentials: those of a role, renewed before they expire."""

    def __init__(self, fetcher: AioAssumeRoleCredentialFetcher) -> None:
        self._fetcher = fetcher

    async def load_credentials(self) -> AioDeferredRefreshableCredentials:
        """Return the credentials; AWS is asked for them when a request is signed."""
        return AioDeferredRefreshableCredentials(self._fetcher.fetch_credentials, "assume-role")
