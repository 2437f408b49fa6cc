"""The file of a history: what is written is read again, and anything else is a HistoryError with its line."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.judge.history import MAX_LINE_BYTES, History, HistoryError, HistoryWriter
from proxy.judge.judge import judge
from proxy.judge.operations import Ack, Client, ClientKind, Done, Poll, Run, Send
from tests.support.histories import clean_history


def write(path: Path, seed: int = 1) -> list[object]:
    writer = HistoryWriter(path)
    operations = list(clean_history(seed))
    for operation in operations:
        writer.write(operation)
    writer.close()
    return operations


def test_a_written_history_is_read_again_with_its_times(tmp_path: Path) -> None:
    operations = write(tmp_path / "history")
    found = list(History(tmp_path / "history"))
    assert found == operations  # the writer has set the times of these very operations
    assert [one.at_us for one in found] == sorted(one.at_us for one in found)
    assert judge(History(tmp_path / "history")).ok


def test_the_writer_counts(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "history")
    writer.write(Run(run="r", topics={"t": 1}))
    writer.write(Send(client=0, topic="t", partition=0, first=0, count=3))
    writer.write(Ack(client=0, topic="t", partition=0, records=[(0, 5), (1, 6)]))
    writer.write(Poll(client=1, topic="t", partition=0, records=[(5, 0, 0)]))
    assert (writer.sent, writer.acknowledged, writer.failed, writer.read[1]) == (3, 2, 0, 1)
    writer.close()
    writer.close()


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    """A run that was killed has a history that can be judged, except for losses."""
    write(tmp_path / "history")
    whole = (tmp_path / "history").read_bytes()
    (tmp_path / "history").write_bytes(whole[: len(whole) * 2 // 3])
    verdict = judge(History(tmp_path / "history"))
    assert not verdict.ok
    assert not verdict.complete
    assert not verdict.totals


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"no json\n", "history:1: no operation of a history"),
        (b'{"op": "done"}\n', "history:1: the first line, and no other, is the operation `run`"),
        (b'{"op": "run", "run": "r", "topics": {}, "format": 2}\n', "history:1: .*format"),
        (b'{"op": "run", "run": "r", "topics": {}}\n{"op": "what"}\n', "history:2: "),
        (
            b'{"op": "run", "run": "r", "topics": {}}\n{"op": "reached", "client": 0, "topic": "t", "partition": 0}\n',
            "line 2: the reached names something that no line before it introduced",
        ),
        (b"x" * MAX_LINE_BYTES, "history:1: the line is longer"),
    ],
)
def test_an_error_names_its_line(tmp_path: Path, text: bytes, words: str) -> None:
    (tmp_path / "history").write_bytes(text)
    with pytest.raises(HistoryError, match=words):
        judge(History(tmp_path / "history"))


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"cannot read .*history: No such file"):
        judge(History(tmp_path / "history"))


@given(st.data())
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_history_is_judged_or_is_an_error(tmp_path: Path, data: st.DataObject) -> None:
    """Lines that are lost, doubled, moved or changed raise no other error than HistoryError."""
    path = tmp_path / "history"
    write(path, seed=data.draw(st.integers(0, 3)))
    lines = path.read_bytes().splitlines(keepends=True)
    at, other = (data.draw(st.integers(1, len(lines) - 1)) for _ in range(2))
    change = data.draw(st.sampled_from(["lose", "double", "move", "digit"]))
    if change == "lose":
        del lines[at]
    elif change == "double":
        lines.insert(other, lines[at])
    elif change == "move":
        lines.insert(other, lines.pop(at))
    else:
        line = bytearray(lines[at])
        digits = [index for index, byte in enumerate(line) if chr(byte).isdigit()]
        line[data.draw(st.sampled_from(digits))] = ord("9")
        lines[at] = bytes(line)
    path.write_bytes(b"".join(lines))
    with suppress(HistoryError):
        judge(History(path))


def test_a_client_that_is_introduced_too_often(tmp_path: Path) -> None:
    views = [Client(client=n, kind=ClientKind.ASSIGN, view=f"v{n}") for n in range(61)]
    with pytest.raises(HistoryError, match="more than 60 views"):
        judge([Run(run="r", topics={"t": 1}), *views, Done()])
