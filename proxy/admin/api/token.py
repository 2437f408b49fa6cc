"""The token that allows actions: read from a file, compared in constant time, and reloaded when the file changes."""

from __future__ import annotations

import hmac
import stat
from pathlib import Path

import structlog

from proxy.process.ports import StartError

log = structlog.get_logger()

_LONGEST_TOKEN = 1_024
_OTHERS = stat.S_IROTH | stat.S_IWOTH


class TokenError(Exception):
    """The file can't be used; one line with setting, cause and remedy."""


class Token:
    """The token of `admin.token_file`; None for the file allows nothing."""

    def __init__(self, path: Path | None) -> None:
        """Raises StartError if the file can't be used."""
        self._path = path
        self._token: bytes | None = None
        self._seen: tuple[int, ...] | None = None
        if path is not None:
            try:
                self._read(path)
            except TokenError as error:
                raise StartError(str(error)) from error

    @property
    def is_set(self) -> bool:
        """True if there is a token. A file that has become unusable allows nothing until it is fixed."""
        self._refresh()
        return self._token is not None

    def allows(self, authorization: str) -> bool:
        """True if an `Authorization` header has the token, as `Bearer TOKEN`."""
        self._refresh()
        scheme, _, said = authorization.partition(" ")
        if self._token is None or scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(said.strip().encode("utf-8", "replace"), self._token)

    def _refresh(self) -> None:
        if self._path is None:
            return
        try:
            found = _identity(self._path)
        except OSError:
            found = ()
        if found == self._seen:
            return
        try:
            self._read(self._path)
            log.info("admin_token_read_again", file=str(self._path))
        except TokenError as error:
            self._token, self._seen = None, found
            log.error("admin_token_unusable", reason=str(error), remedy="fix the file; until then no action is allowed")

    def _read(self, path: Path) -> None:
        where = f"admin.token_file: {path}"
        try:
            seen = _identity(path)
            if path.stat().st_mode & _OTHERS:
                raise TokenError(f"{where} can be read or written by everyone on this machine; chmod o-rw it")
            with path.open("rb") as file:
                token = file.read(_LONGEST_TOKEN + 1).strip()
        except OSError as error:
            raise TokenError(
                f"{where} can't be read: {error.strerror}; write a token into it, or remove the setting"
            ) from error
        if not token:
            raise TokenError(f"{where} is empty; write a token into it: openssl rand -hex 32")
        if len(token) > _LONGEST_TOKEN or not all(0x21 <= byte <= 0x7E for byte in token):
            raise TokenError(
                f"{where} does not contain a token (up to {_LONGEST_TOKEN} printable ASCII characters without blanks); "
                "create one: openssl rand -hex 32"
            )
        self._token, self._seen = token, seen


def _identity(path: Path) -> tuple[int, ...]:
    """Return a value that changes when the file does, also behind links that Kubernetes moves."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode
