"""Tokens for OAUTHBEARER from an authorization server: the client credentials grant (RFC 6749, section 4.4)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from proxy.security.sasl import SaslError

_MAX_ANSWER_BYTES = 65_536
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class ClientCredentials(BaseModel):
    """The file `brokers.sasl.client_credentials_file`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    token_endpoint_url: str
    client_id: str
    client_secret: SecretStr
    scope: str = ""


def read_credentials(path: Path) -> ClientCredentials:
    """Read the file. Raises SaslError, which names the mistake and shows nothing of the file."""
    try:
        credentials = ClientCredentials.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SaslError(f"can't read {path}: {error.strerror}; name a file that the proxy may read") from None
    except ValidationError as error:
        found = ", ".join(sorted({".".join(map(str, one["loc"])) or "the file" for one in error.errors()}))
        raise SaslError(
            f"{path} is not a JSON object with token_endpoint_url, client_id, client_secret and scope: see {found}"
        ) from None
    address = urlsplit(credentials.token_endpoint_url)
    if address.scheme != "https" and not (address.scheme == "http" and address.hostname in _LOOPBACK):
        raise SaslError(f"token_endpoint_url in {path} must be https: the secret would cross the network in clear")
    return credentials


async def fetch_token(credentials: ClientCredentials, timeout_s: float) -> str:
    """Request an access token.

    Raises SaslError, which shows nothing of the server's answer except status and error code.
    """
    form = {"grant_type": "client_credentials"} | ({"scope": credentials.scope} if credentials.scope else {})
    pair = f"{credentials.client_id}:{credentials.client_secret.get_secret_value()}"
    headers = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    where = urlsplit(credentials.token_endpoint_url).netloc.rpartition("@")[2]
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_s)) as session,
            session.post(credentials.token_endpoint_url, data=form, headers=headers, allow_redirects=False) as response,
        ):
            answer = _object(await _read(response.content))
            if response.status != 200:
                raise SaslError(
                    f"{where} answered {response.status} {str(answer.get('error', ''))[:100]}; see client_id and "
                    "client_secret"
                )
    except (aiohttp.ClientError, TimeoutError) as error:
        raise SaslError(f"{where} gave no token: {str(error) or type(error).__name__}") from None
    token = answer.get("access_token")
    if not isinstance(token, str):
        raise SaslError(f"{where} answered without an access_token")
    return token


async def _read(content: aiohttp.StreamReader) -> bytes:
    """Return the whole answer, which may come in parts, up to the limit."""
    body = b""
    while len(body) < _MAX_ANSWER_BYTES and (part := await content.read(_MAX_ANSWER_BYTES - len(body))):
        body += part
    return body


def _object(body: bytes) -> dict[str, object]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
