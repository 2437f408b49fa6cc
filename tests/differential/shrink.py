"""Reduce operations while the difference stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def shrunk(items: Sequence[Item], still: Callable[[list[Item]], bool], most_tries: int) -> list[Item]:
    """Return as few of the items, in their order, as `still` accepts; the last item always stays.

    Runs of items are left out, half of them at first, then shorter ones, as long as tries are left.
    """
    kept, last = list(items[:-1]), items[-1]
    length, tries = max(len(kept) // 2, 1), 0
    while kept and length >= 1:
        at, shorter = 0, False
        while at < len(kept):
            if tries == most_tries:
                return [*kept, last]
            fewer = kept[:at] + kept[at + length :]
            tries += 1
            if still([*fewer, last]):
                kept, shorter = fewer, True
            else:
                at += length
        if length == 1 and not shorter:
            break
        length = max(length // 2, 1)
    return [*kept, last]
