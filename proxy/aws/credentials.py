"""Credentials of the usual AWS chain: environment, profile, web identity, instance role. The chain renews them."""

from __future__ import annotations

import asyncio
import os

from aiobotocore.session import AioSession, get_session
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError

_WITHIN_S = 10.0


class NoCredentials(Exception):
    """AWS gave no credentials; one line with cause and remedy."""


class AwsCredentials:
    """The credentials of this process."""

    def __init__(self, session: AioSession | None = None) -> None:
        """Use the default session unless one is given."""
        self._session = session or get_session()

    async def current(self) -> ReadOnlyCredentials:
        """Return credentials that are valid now. Raises NoCredentials."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                found = await self._session.get_credentials()
                if found is not None:
                    return await found.get_frozen_credentials()
        except TimeoutError:
            raise NoCredentials(f"AWS gave no credentials within {_WITHIN_S:g} s") from None
        except (BotoCoreError, ClientError, OSError) as error:
            raise NoCredentials(
                f"AWS gave no credentials ({type(error).__name__}); see the AWS profile or role"
            ) from None
        raise NoCredentials("no AWS credentials were found; give the proxy an AWS profile or role")

    def region(self) -> str:
        """Return the region of the environment or profile; empty if there is none.

        AWS's own places set AWS_REGION, which the session does not read.
        """
        return str(self._session.get_config_variable("region") or os.environ.get("AWS_REGION", ""))
