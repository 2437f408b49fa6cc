"""User and password at the coordinator's store, read again for each new connection.

So a password that rotates needs no restart of the proxies.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError

from proxy import config
from proxy.coordinator.aws_iam import AwsIam


class PasswordFile(CredentialProvider):
    """The user of `redis.url`, and the password in a file."""

    def __init__(self, username: str | None, file: str) -> None:
        self._username = username
        self._file = file

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """Return the password, after the user if there is one. Raises AuthenticationError if the file can't be read."""
        password = self._password()
        return (self._username, password) if self._username else (password,)

    def _password(self) -> str:
        try:
            return Path(self._file).read_text(encoding="utf-8").strip("\r\n")
        except OSError as error:
            raise AuthenticationError(f"redis.password_file: can't read {self._file}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise AuthenticationError(f"redis.password_file: {self._file} is not text") from None


def credentials_of(settings: config.Redis, username: str | None) -> CredentialProvider | None:
    """Return what is asked for user and password at each new connection; None if `redis.url` has them.

    Raises ValueError if `redis.credentials` names no class that can be used.
    """
    if settings.password_file:
        return PasswordFile(username, settings.password_file)
    if settings.aws_iam:
        return AwsIam(username or "", settings.aws_iam)
    if not settings.credentials:
        return None
    module, _, name = settings.credentials.partition(":")
    try:
        found = getattr(import_module(module), name)()
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"redis.credentials: can't make a {settings.credentials}: {error}") from error
    if not isinstance(found, CredentialProvider):
        raise ValueError(f"redis.credentials: {settings.credentials} is not a redis.credentials.CredentialProvider")
    return found
