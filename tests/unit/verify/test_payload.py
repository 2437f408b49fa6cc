"""Every byte of a record is checked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.judge.findings import Value
from proxy.verify.payload import DAMAGED, FOREIGN, MIN_RECORD_BYTES, read, record

values = st.builds(Value, st.integers(0, 1 << 22), st.integers(0, (1 << 39)))


@given(values, st.integers(MIN_RECORD_BYTES, 300))
def test_a_record_is_recognised(value: Value, size: int) -> None:
    key, content = record("0a1b2c3d", value, size)
    assert len(content) == size
    assert read("0a1b2c3d", key, content) == value
    assert read("ffffffff", key, content) == FOREIGN
    assert read("0a1b2c3d", None, content) == DAMAGED


@given(values, st.data())
def test_a_changed_byte_is_noticed(value: Value, data: st.DataObject) -> None:
    key, content = record("run", value, 100)
    at = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[at] ^= data.draw(st.integers(1, 255))
    assert read("run", key, bytes(changed)) in (DAMAGED, FOREIGN)


@given(st.none() | st.binary(), st.none() | st.binary())
def test_records_of_others_are_foreign(key: bytes | None, content: bytes | None) -> None:
    assert read("run", key, content) == FOREIGN
