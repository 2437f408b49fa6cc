from __future__ import annotations

import io
import json

from rich.console import Console

from proxy.demo import report
from proxy.demo.ledger import Ledger
from proxy.demo.progress import Progress
from proxy.demo.tally import Tally

RACKS = ("rack-a", "rack-b")
MOVED = report.Moved(
    cross_rack_bytes={"classic": 3_000_000, "diskless": 0},
    record_bytes={"classic": 4_000_000, "diskless": 4_000_000},
    near_read_bytes=2_000_000,
    coordination_bytes=20_000,
)


def tally(*, lost: int = 0, failed: int = 0, records: int = 2) -> Tally:
    """Two topics; `lost` of the diskless one's records are not read in rack-b."""
    topics = {}
    for kind in ("classic", "diskless"):
        ledger = Ledger(f"demo-{kind}", RACKS)
        rows = [(1, sequence, 0, sequence, 5, 2000) for sequence in range(records)]
        ledger.acknowledged(rows)
        ledger.failed([(1, records + number, "_MSG_TIMED_OUT") for number in range(failed)])
        ledger.read("rack-a", rows)
        ledger.read("rack-b", rows[: records - lost] if kind == "diskless" else rows)
        topics[kind] = ledger.tally(final=True)
    return Tally(topics)


def drawn(what: object) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(what)
    return out.getvalue()


def test_the_json_has_exactly_the_promised_keys() -> None:
    numbers = ["produced", "consumed", "lost", "duplicated"]
    latencies = ["produce_p50_ms", "produce_p99_ms", "e2e_p50_ms", "e2e_p99_ms"]
    found = json.loads(json.dumps(report.as_json(tally(lost=1), MOVED)))
    assert list(found) == ["classic", "diskless", "cross_rack_bytes"]
    assert found["cross_rack_bytes"] == {"classic": 3_000_000, "diskless": 0}
    assert list(found["classic"]) == list(found["diskless"]) == numbers + latencies
    assert [found["classic"][name] for name in numbers] == [2, 2, 0, 0]
    assert [found["diskless"][name] for name in numbers] == [2, 1, 1, 0]
    assert 1.9 < found["classic"]["e2e_p50_ms"] < 2.1


def test_the_first_words_say_whether_all_is_well() -> None:
    assert report.verdict(tally(), 2) == [
        "All is well: each of the 4 acknowledged records was read in all 2 racks exactly once, in order, at the same "
        "offset and with the same bytes."
    ]
    first, *details = report.verdict(tally(lost=1), 2)
    assert first == (
        "SOMETHING IS WRONG: of 2 records on the classic topic, none is wrong; "
        "of 2 records on the diskless topic, 1 lost."
    )
    assert details == ["  demo-diskless: record 1 of producer 1, partition 0 offset 1, was not read in rack-b"]


def test_a_load_that_got_nothing_through_is_not_well() -> None:
    assert "not one record was acknowledged on the classic topic" in report.verdict(tally(records=0), 2)[0]


def test_records_that_producers_gave_up_are_reported_and_are_not_a_loss() -> None:
    said = report.verdict(tally(failed=3), 2)
    assert said[0].startswith("All is well")
    assert said[1].startswith("Producers gave up 3 records of the classic topic (3 _MSG_TIMED_OUT); 0 of them")


def test_bytes_between_racks_are_reported_with_the_copies_and_the_coordination() -> None:
    classic, diskless = report.between_racks(tally(), MOVED, replicas=3, record_bytes=500_000)
    assert "3.0 MB of records went between" in classic
    assert "to 2 other racks: 2.0 MB more" in classic
    assert "0 MB of records went between" in diskless
    assert "took 20.0 kB to and from Redis, 0.5 % of the record bytes" in diskless


def test_the_table_has_the_final_counts_only_at_the_end() -> None:
    assert "lost" not in drawn(report.table("now", tally(), MOVED, final=False))
    final = drawn(report.table("then", tally(lost=1, failed=2), MOVED, final=True))
    rows = {cells[0].strip(): cells[1:] for line in final.splitlines() if len(cells := line.strip("│").split("│")) == 3}
    assert [cell.strip() for cell in rows["lost"]] == ["0", "1"]
    assert [cell.strip() for cell in rows["read in rack-b"]] == ["2", "1"]
    assert [cell.strip() for cell in rows["given up by their producer"]] == ["2", "2"]


def test_a_table_of_nothing_can_be_drawn() -> None:
    assert "–" in drawn(report.table("now", tally(records=0), MOVED, final=True))


def test_without_a_terminal_progress_is_an_occasional_line() -> None:
    out = io.StringIO()
    with Progress(Console(file=out), seconds=20, lines_seconds=0.0) as progress:
        progress.show(tally(), MOVED)
    classic, diskless = out.getvalue().splitlines()
    assert "classic: 2 acknowledged, read rack-a 2 rack-b 2" in classic
    assert "3.0 MB between racks" in classic
    assert "diskless: 2 acknowledged" in diskless
    out.truncate(0)
    with Progress(Console(file=out), seconds=20, lines_seconds=60.0) as progress:
        progress.show(tally(), MOVED)
    assert not out.getvalue()


def test_on_a_terminal_the_progress_is_a_table_that_goes_away() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with Progress(console, seconds=20) as progress:
        progress.phase = "waiting"
        progress.show(tally(), MOVED)
    assert "waiting: 0 s of 20 s" in out.getvalue()
    assert "records acknowledged" in out.getvalue()
