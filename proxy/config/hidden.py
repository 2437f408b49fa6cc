"""The text that replaces a secret in output, and the search for settings that have this text as their value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, SecretStr

HIDDEN = "***"
"""Text that replaces a secret."""


def hidden_in(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the places in settings, or in a value at `path` in them, that have HIDDEN instead of a secret.

    `config show` prints it so.
    """
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from hidden_in(getattr(value, name), (*path, name))
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from hidden_in(one, (*path, number))
    else:
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        # A URL hides user and password before its `@`, and secrets among its options.
        if isinstance(text, str) and (text == HIDDEN or f"{HIDDEN}@" in text or f"={HIDDEN}" in text):
            yield path
