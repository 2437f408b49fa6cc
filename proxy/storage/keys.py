"""Checks of keys and ranges that every storage makes before it touches anything."""

from __future__ import annotations

from proxy.storage.interface import StorageError


def checked_key(key: str) -> str:
    """Return `key` if its parts are plain names.

    Raises StorageError for a key that could leave the prefix (`..`, a leading slash), or with a part that begins with a
    dot: such names are reserved for the storage itself.
    """
    if not key or "\0" in key or "\\" in key or any(not part or part.startswith(".") for part in key.split("/")):
        raise StorageError(f"{key!r} is not a key: its parts must be plain names, separated by single slashes")
    return key


def checked_folder(folder: str) -> str:
    """Return `folder` if it is empty, or a key and a slash. Raises StorageError."""
    if folder and (not folder.endswith("/") or not checked_key(folder[:-1])):
        raise StorageError(f"{folder!r} is not a folder of keys: it must end with a slash")
    return folder


def checked_range(key: str, start: int, end: int | None) -> None:
    """Raises StorageError for a range that is negative or runs backwards."""
    if start < 0 or (end is not None and end < start):
        raise StorageError(f"bytes {start} to {end} of {key} are not a range")
