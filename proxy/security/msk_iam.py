"""AWS_MSK_IAM: the proxy proves to brokers of Amazon MSK that it has a role of AWS.

The payload is a presigned request, as the fields of a JSON object, for the action `kafka-cluster:Connect` at the
broker's host (AWS Signature Version 4, signed query). It follows aws-msk-iam-auth (`AWS4SignedPayloadGenerator`),
version 2020_10_22. The signature names the host that the client connects to, so this mechanism of a *client* cannot
pass through a proxy; the tokens that AWS's signers make for OAUTHBEARER name a regional host, and do.
"""

from __future__ import annotations

import asyncio
import json
import re
from urllib.parse import parse_qsl, urlsplit

from aiobotocore.session import AioSession, get_session
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError

from proxy.security.sasl import SaslError

VERSION = "2020_10_22"
ACTION = "kafka-cluster:Connect"
_SERVICE = "kafka-cluster"
_USER_AGENT = "diskless-proxy"
_EXPIRY_S = 900
"""Time in which a payload may be used, as AWS's own client sets it; brokers take it once, at once."""
_CREDENTIALS_WITHIN_S = 10.0
_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.(?:amazonaws\.com(?:\.cn)?|api\.aws)$")


class AwsCredentials:
    """Credentials of the usual AWS chain (environment, profile, web identity, instance role), renewed by the chain."""

    def __init__(self, session: AioSession | None = None) -> None:
        """Use the default session unless one is given."""
        self._session = session or get_session()

    async def current(self) -> ReadOnlyCredentials:
        """Return credentials that are valid now. Raises SaslError."""
        try:
            async with asyncio.timeout(_CREDENTIALS_WITHIN_S):
                found = await self._session.get_credentials()
                if found is not None:
                    return await found.get_frozen_credentials()
        except TimeoutError:
            raise SaslError(f"AWS gave no credentials within {_CREDENTIALS_WITHIN_S:g} s") from None
        except (BotoCoreError, ClientError, OSError) as error:
            raise SaslError(f"AWS gave no credentials ({type(error).__name__}); see the AWS profile or role") from None
        raise SaslError("no AWS credentials were found; give the proxy an AWS profile or role")

    def region(self) -> str:
        """Return the region of the environment or profile; empty if there is none."""
        return str(self._session.get_config_variable("region") or "")


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
    request = AWSRequest("GET", f"https://{host}/", params={"Action": ACTION})
    SigV4QueryAuth(credentials, _SERVICE, region, expires=_EXPIRY_S).add_auth(request)
    signed = {name.lower(): value for name, value in parse_qsl(urlsplit(request.url).query)}
    fields = {"version": VERSION, "host": host, "user-agent": _USER_AGENT, **signed}
    return json.dumps(fields, separators=(",", ":")).encode()
