from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.units import byte_count, bytes_text, duration_ms, seconds_text


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("90s", 90_000), ("15m", 900_000), ("1h", 3_600_000), (" 7 d ", 604_800_000), ("0s", 0)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "1", "h", "-1h", "1.5h", "1 week", "1h30m"])
def test_invalid_durations(text: str) -> None:
    with pytest.raises(ValueError, match="write it as 90s"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "count"), [("65536", 65536), ("0", 0), ("3B", 3), ("64KiB", 65536), ("64 MiB", 1 << 26), ("1TiB", 1 << 40)]
)
def test_sizes(text: str, count: int) -> None:
    assert byte_count(text) == count


@pytest.mark.parametrize("text", ["", "64MB", "-1", "1.5GiB", "MiB"])
def test_invalid_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="write it as 65536"):
        byte_count(text)


@given(st.integers(0, 1023), st.sampled_from(["B", "KiB", "MiB", "GiB", "TiB"]))
def test_a_size_is_printed_as_it_is_parsed(count: int, unit: str) -> None:
    size = byte_count(f"{count}{unit}")
    size_text = bytes_text(size)
    assert float(size_text.split()[0].replace(",", "")) == count if size >= 1024 or unit == "B" else size_text == "0 B"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.2, "0 s"), (59.4, "59 s"), (59.9, "1 min 0 s"), (200, "3 min 20 s"), (7_500, "2 h 5 min")],
)
def test_spans_for_people(seconds: float, expected: str) -> None:
    assert seconds_text(seconds) == expected
