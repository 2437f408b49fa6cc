"""Files of a report: their sums are right, and names of racks and topics cannot break them."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from pipeline.errors import PipelineError
from pipeline.job import Finding
from pipeline.traffic.costs import Model
from pipeline.traffic.output import write_files
from pipeline.traffic.picture import draw
from pipeline.traffic.report import NO_TRAFFIC, TrafficReport, bad_rollup
from pipeline.traffic.span import Span
from pipeline.traffic.summary import Moved, Summary, summary_of
from pipeline.traffic.table import decode, empty, summed
from pipeline.traffic.units import decimal_text, share_text, usd_text
from proxy.accounting.rollups.table import HOUR_MS, Measure, RollupRow
from proxy.config import Prices
from tests.unit.pipeline.traffic.rollups import HOUR, rollup, row

SPAN = Span(HOUR, HOUR + 3 * HOUR_MS)
BAD_NAME = "<&\"']]>\n\x07[bold]x"
ROWS = (
    row(100),
    row(50, client_rack="b"),
    row(30, kind="classic", hour=1, serving_rack="b", topic=BAD_NAME),
    row(20, kind="classic", hour=2, topic="x"),
    row(15, Measure.NEAR_READS, kind="classic", hour=2, topic=""),
    row(7, Measure.PUTS, direction="produce", topic="", client_rack="", serving_rack="", requests=3),
    row(5, Measure.COORDINATION, direction="sent", topic="", client_rack="", serving_rack=""),
)


def made(*rows: RollupRow, span: Span = SPAN) -> tuple[Any, Summary]:
    table = summed([decode(rollup(*rows))] if rows else [], span)
    return table, summary_of(table, span, Prices())


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]


def test_sums_by_hour_and_topic() -> None:
    _, summary = made(*ROWS)
    assert summary.hours == {
        HOUR: Moved(150, 50, 50),
        HOUR + HOUR_MS: Moved(30, 30, 30),
        HOUR + 2 * HOUR_MS: Moved(20, 0, 0, 15, 15),
    }
    assert summary.topics[("diskless", "fetch", "orders")] == Moved(150, 50, 50)
    assert summary.moved == Moved(200, 80, 80, 15, 15)
    assert summary.model == Model(2)


def test_the_detail_adds_up_in_every_file(tmp_path: Path) -> None:
    table, summary = made(*ROWS)
    written = write_files(tmp_path / "new" / "folder", table, summary)
    assert sorted(Path(path).name for path in written) == ["costs.csv", "traffic.csv", "traffic.parquet", "traffic.svg"]
    assert sorted(written) == sorted(map(str, (tmp_path / "new" / "folder").iterdir())), "nothing else is left"
    with Path(written[0]).open(newline="") as file:
        rows = list(csv.DictReader(file))
    records = [one for one in rows if one["measure"] == "records"]
    assert sum(int(one["bytes"]) * int(one["crossings"]) for one in records) == 80
    assert [(one["hour"], one["topic"]) for one in records][-1] == ("2026-06-16T22:00:00Z", "x")
    assert BAD_NAME in {one["topic"] for one in records}
    stored = pq.read_table(written[1]).to_pylist()
    assert [str(one["bytes"]) for one in stored] == [one["bytes"] for one in rows]
    with Path(written[2]).open(newline="") as file:
        bill = list(csv.DictReader(file))
    assert sum(float(one["usd"]) for one in bill) == pytest.approx(
        summary.bill.total_usd("with_proxies") + summary.bill.total_usd("without_proxies")
    )
    assert write_files(tmp_path / "new" / "folder", table, summary) == written, "again, over what is there"


def test_costs_are_printed_without_the_noise_of_floats(tmp_path: Path) -> None:
    puts = row(7, Measure.PUTS, direction="produce", topic="", client_rack="", serving_rack="", requests=13)
    written = write_files(tmp_path, *made(puts))
    with Path(written[2]).open(newline="") as file:
        assert [one["usd"] for one in csv.DictReader(file) if one["requests"] == "13"] == ["6.5e-05"]


def test_an_unwritable_place_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match=r"--output .*file/inside"):
        write_files(tmp_path / "file" / "inside", *made(*ROWS))


def test_the_picture_names_what_is_in_it() -> None:
    _, summary = made(*ROWS, row(40, client_rack=BAD_NAME))
    printed = "\n".join(texts(draw(summary)))
    assert "Traffic between racks" in printed
    assert "2026-06-16 20:00 to 2026-06-16 23:00 UTC: 240 B of records" in printed
    assert "diskless: PUTs of WAL segments (3 requests)" in printed
    assert "replication factor 3" in printed


@pytest.mark.parametrize("hours", [1, 30, 168, 24 * 40, 24 * 4000])
def test_bars_are_as_high_as_their_sums(hours: int) -> None:
    rows = [row(2**20 * (1 + hour % 5), hour=hour) for hour in range(0, hours, max(1, hours // 500))]
    _, summary = made(*rows, span=Span(HOUR, HOUR + hours * HOUR_MS))
    svg = ElementTree.fromstring(draw(summary))
    bars = [one for one in svg.iter() if "of records" not in (one.text or "") and one.get("class") == "inside"]
    tips = [title.text for bar in bars for title in bar if "stayed in their rack" in (title.text or "")]
    assert 0 < len(tips) <= 400
    assert all(float(bar.get("height", 0)) >= 0 and float(bar.get("y", 0)) >= 0 for bar in bars)


def test_many_racks_are_folded() -> None:
    rows = [
        row(100 + n, client_rack=f"rack-{n:02}", serving_rack=f"rack-{n:02}", rack=f"rack-{n:02}") for n in range(20)
    ]
    _, summary = made(*rows)
    printed = texts(draw(summary))
    assert printed.count("(others)") == 2
    assert "rack-19" in printed
    assert "rack-00" not in printed


def test_a_report_of_nothing_is_one_too(tmp_path: Path) -> None:
    table, summary = made()
    assert table.equals(empty())
    assert summary.figures()["saved_usd"] == 0
    assert "0 B of records" in "\n".join(texts(draw(summary)))
    write_files(tmp_path, table, summary)


def test_the_terminal_shows_ways_topics_and_the_bill() -> None:
    _, summary = made(*ROWS)
    report = TrafficReport("traffic", [bad_rollup("traffic/x", "it is [odd]")], summary.figures(), summary)
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    report.print(console)
    console.file.close()
    printed = console.export_text()
    for text in ("it is [odd]", "client rack", "orders", "with the proxies", "without, by the model", "saved"):
        assert text in printed
    assert report.exit_code == 1
    assert json.loads(report.as_json())["figures"]["record_bytes"] == 200


def test_without_traffic_only_this_fact_is_shown() -> None:
    _, summary = made()
    report = TrafficReport("traffic", [Finding(NO_TRAFFIC, "a week", "no rollup")], summary.figures(), summary)
    output = io.StringIO()
    report.print(Console(file=output, width=160))
    assert output.getvalue() == "traffic: 1 finding\nno_traffic: a week no rollup\n"


def test_amounts_for_people() -> None:
    assert [decimal_text(size) for size in (0, 999, 1000, 12_345, 999_600, 5e12)] == [
        "0 B", "999 B", "1.00 kB", "12.3 kB", "1.00 MB", "5.00 TB"
    ]  # fmt: skip
    assert [usd_text(usd) for usd in (0, 1234.5, 0.1, 0.00123, 1e-7, -1e-7, -3)] == [
        "0.00 USD", "1,234.50 USD", "0.10 USD", "0.0012 USD", "about 0 USD", "about 0 USD", "-3.00 USD"
    ]  # fmt: skip
    assert [share_text(*pair) for pair in ((1, 2), (0, 5), (1, 1000), (999, 1000), (3, 0))] == [
        "50 %", "0 %", "less than 1 %", "more than 99 %", "0 %"
    ]  # fmt: skip
