"""Records of the journal: the call of one script, as it is applied by whatever proxy comes first.

A record is u8 format, u16 rules, u64 `not_after_ms`, u8 length of the script's name, the name, then the script's
arguments after the first: u32 length and bytes each. Numbers are big-endian.
"""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

FORMAT = 1
"""The layout of records."""
RULES = 5
"""Number of the rules by which scripts work. A change that alters an answer raises it: a record is applied by the rules
that it was written under, so that two releases can't compute two histories."""
_HEAD = Struct(">BHQB")
_LENGTH = Struct(">I")


class JournalledCall(NamedTuple):
    """A call of a script that is, or will be, in the journal."""

    name: str
    arguments: tuple[bytes, ...]
    """The script's arguments after the first."""
    not_after_ms: int = 0
    """Time by the journal's clock after which the call does nothing; 0 for none."""


NOTHING = JournalledCall("skip", ())
"""Call that is applied in place of a record that is not a call."""


class RecordTooNew(Exception):
    """The record was written by a newer release."""


def pack_record(call: JournalledCall) -> bytes:
    """Return the value of a record."""
    name = call.name.encode()
    parts = [_HEAD.pack(FORMAT, RULES, call.not_after_ms, len(name)), name]
    for argument in call.arguments:
        parts += (_LENGTH.pack(len(argument)), argument)
    return b"".join(parts)


def unpack_record(value: bytes, scripts: Collection[str], nothing: JournalledCall = NOTHING) -> JournalledCall:
    """Return the call in a record; `nothing` for a value that no release writes, or that calls none of the `scripts`.

    Every proxy skips such a value, so all views stay equal. Raises RecordTooNew.
    """
    try:
        layout, rules, not_after_ms, name_bytes = _HEAD.unpack_from(value)
    except StructError:
        return nothing
    if layout != FORMAT or rules != RULES:
        raise RecordTooNew(f"a record of format {layout} and rules {rules}; this release knows {FORMAT} and {RULES}")
    at = _HEAD.size + name_bytes
    name = value[_HEAD.size : at].decode(errors="replace")
    arguments = []
    while at < len(value):
        if len(value) < at + _LENGTH.size:
            return nothing
        (length,) = _LENGTH.unpack_from(value, at)
        at += _LENGTH.size + length
        arguments.append(value[at - length : at])
    if at != len(value) or name not in scripts:
        return nothing
    return JournalledCall(name, tuple(arguments), not_after_ms)
