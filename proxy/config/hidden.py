"""What stands in the place of a secret where settings are shown, and finding it where it was taken for one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, SecretStr

HIDDEN = "***"
"""In the place of a secret that is set."""


def hidden_in(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where settings, or a value at `path` in them, have HIDDEN for a secret, as in what `config show` prints."""
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
