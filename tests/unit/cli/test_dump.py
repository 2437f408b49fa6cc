"""`segments dump` of files: lines, JSON, errors in one line, exit codes."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from proxy.cli import app
from proxy.inspection import dump
from tests.batches import GZIP, ZSTD, make_batch

BATCHES = [
    make_batch([b"first", b"second"], timestamp_ms=1_000),
    make_batch([b"third"], codec=ZSTD, producer_id=9, producer_epoch=2, base_sequence=2**31 - 1, timestamp_ms=2_000),
    make_batch([bytes([0, 27, 255]), None], codec=GZIP, timestamp_ms=3_000),
]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / uuid.UUID(int=7).hex
    path.write_bytes(b"\0" + b"".join(BATCHES))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["segments", "dump", *map(str, arguments)])


def fields(line: str) -> dict[str, str]:
    """Return the `name: value` pairs of a line."""
    return dict(re.findall(r"(\w+): (\S+)", line))


def test_every_batch_is_a_line_with_the_fields_of_kafkas_tool(segment: Path) -> None:
    done = run(segment)
    head, *lines = done.stdout.splitlines()
    assert (done.exit_code, head, done.stderr) == (0, f"Dumping {segment}", "")
    first, second, third = map(fields, lines)
    assert second == {
        "baseOffset": "0",
        "lastOffset": "0",
        "count": "1",
        "baseSequence": str(2**31 - 1),
        "lastSequence": str(2**31 - 1),
        "producerId": "9",
        "producerEpoch": "2",
        "partitionLeaderEpoch": first["partitionLeaderEpoch"],
        "isTransactional": "false",
        "isControl": "false",
        "position": str(1 + len(BATCHES[0])),
        "CreateTime": "2000",
        "size": str(len(BATCHES[1])),
        "magic": "2",
        "compresscodec": "zstd",
        "crc": str(int.from_bytes(BATCHES[1][17:21], "big")),
        "isvalid": "true",
    }
    assert (first["lastOffset"], first["count"], first["lastSequence"], third["compresscodec"]) == (
        "1",
        "2",
        "-1",
        "gzip",
    )


def test_records_without_terminal_control_characters(segment: Path) -> None:
    lines = [line for line in run(segment, "--records").stdout.splitlines() if line.startswith("|")]
    assert lines[0] == (
        "| offset: 0 CreateTime: 1000 keySize: -1 valueSize: 5 sequence: -1 headerKeys: [] payload: first"
    )
    assert lines[3].endswith(r"valueSize: 3 sequence: -1 headerKeys: [] payload: \x00\x1b\xff")
    assert lines[4].endswith("valueSize: -1 sequence: -1 headerKeys: []")
    assert len(lines) == 5


def test_json_has_an_object_a_line(segment: Path) -> None:
    shown = [json.loads(line) for line in run(segment, "--records", "--json").stdout.splitlines()]
    assert [one["count"] for one in shown] == [2, 1, 2]
    assert [record["value"] for record in shown[0]["records"]] == ["first", "second"]
    assert shown[2]["records"][0]["value_base64"] == "ABv/"
    assert "records" not in json.loads(run(segment, "--json").stdout.splitlines()[0])


def test_a_file_url_and_small_reads_show_the_same(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(segment, "--records").stdout
    monkeypatch.setattr(dump, "WINDOW_BYTES", 1)
    assert run(segment.as_uri(), "--records").stdout == whole


def test_a_wrong_crc_is_shown_and_ends_with_1(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[len(BATCHES[0]) - 1] ^= 1
    segment.write_bytes(data)
    done = run(segment, "--records")
    assert [fields(line)["isvalid"] for line in done.stdout.splitlines() if "isvalid" in line] == [
        "false",
        "true",
        "true",
    ]
    assert (done.exit_code, done.stderr) == (1, f"error: 1 corrupt batch in {segment}\n")


def test_batches_before_a_cut_are_shown(segment: Path) -> None:
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-1])
    done = run(segment)
    position = 1 + len(BATCHES[0]) + len(BATCHES[1])
    assert len(done.stdout.splitlines()) == 3
    assert done.exit_code == 1
    assert done.stderr == (
        f"error: at byte {position}: record batch says {len(BATCHES[2])} bytes where {len(BATCHES[2]) - 1} are\n"
    )


@pytest.mark.parametrize("kept", range(1, 61, 6))
def test_a_cut_at_any_place_is_one_line(segment: Path, kept: int) -> None:
    segment.write_bytes(segment.read_bytes()[: 1 + len(BATCHES[0]) + kept])
    done = run(segment)
    assert (done.exit_code, len(done.stdout.splitlines()), done.stderr.count("\n")) == (1, 2, 1)


@pytest.mark.parametrize(
    ("content", "error"), [(b"", "is empty"), (b"\x07abc", "unknown format version 7"), (None, "no file")]
)
def test_a_file_that_is_not_a_segment_is_reported_in_one_line(
    tmp_path: Path, content: bytes | None, error: str
) -> None:
    path = tmp_path / "other"
    if content is not None:
        path.write_bytes(content)
    done = run(path)
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    assert error in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_directory_and_a_bare_name_without_settings_are_reported_in_one_line(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.exit_code, done.stderr) == (1, f"error: {tmp_path}: Is a directory\n")
    done = run(uuid.UUID(int=7))
    assert (done.exit_code, "--config" in done.stderr) == (1, True)
    assert run("x", "--offsets").exit_code == 2
