"""IAM authentication at Amazon ElastiCache and MemoryDB: a signed token in place of the password.

The token is a presigned request for the action `connect` of the user, without its scheme. It follows AWS's
documentation of IAM authentication for ElastiCache and MemoryDB, and its example `elasticache-iam-auth-demo-app`. A
token may be used for 15 minutes, and a connection for twelve hours.
"""

from __future__ import annotations

from botocore.credentials import ReadOnlyCredentials
from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError

from proxy.aws.credentials import AwsCredentials, NoCredentials
from proxy.aws.presigned import presigned_url


class AwsIam(CredentialProvider):
    """The user of `redis.url`, and a token for each connection."""

    def __init__(self, username: str, name: str, credentials: AwsCredentials | None = None) -> None:
        """`name`: the setting `redis.aws_iam`, as `elasticache/NAME`."""
        self._username = username
        self._name = name
        self._credentials = credentials or AwsCredentials()

    async def get_credentials_async(self) -> tuple[str, str]:
        """Return the user and a token. Raises AuthenticationError, which names what AWS lacks."""
        region = self._credentials.region()
        if not region:
            raise AuthenticationError("redis.aws_iam: no AWS region is set; set AWS_REGION")
        try:
            return self._username, build_token(self._username, self._name, region, await self._credentials.current())
        except NoCredentials as error:
            raise AuthenticationError(f"redis.aws_iam: {error}") from None


def build_token(username: str, name: str, region: str, credentials: ReadOnlyCredentials) -> str:
    """Return a token that the cache or cluster of that name and region accepts for the user."""
    service, _, host = name.partition("/")
    url = presigned_url(f"http://{host}/", {"Action": "connect", "User": username}, service, region, credentials)
    return url.removeprefix("http://")
