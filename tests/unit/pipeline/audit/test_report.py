"""The report of an audit, for people and for scripts."""

from __future__ import annotations

import io
import json

from rich.console import Console

from pipeline.audit.defects import MAX_SUSPICIONS, Defect, Log, Suspicion, Suspicions
from pipeline.audit.report import MAX_LISTED, AuditReport

LOG = Log("orders", bytes(16), 3)


def test_findings_and_topics() -> None:
    report = AuditReport("audit")
    assert report.exit_code == 0
    report.add([Suspicion(Defect.GAP, "no row holds [1, 2]", LOG, 7)])
    report.figures = {"rows_checked": 1_000_000, "topics": {"orders": {"partitions": 4, "rows": 1_000_000}}}
    assert report.exit_code == 1
    output = io.StringIO()
    report.print(Console(file=output, width=120))
    for text in ("gap", "orders-3@7", "no row holds [1, 2]", "partitions", "1,000,000"):
        assert text in output.getvalue(), text
    report_json = json.loads(report.as_json())
    assert report_json["findings"] == [{"kind": "gap", "where": "orders-3@7", "text": "no row holds [1, 2]"}]
    assert report_json["figures"]["topics"]["orders"]["partitions"] == 4


def test_the_number_of_findings_of_a_kind_is_limited() -> None:
    report = AuditReport("audit")
    report.add(Suspicion(Defect.GAP, str(number), LOG, number) for number in range(MAX_LISTED + 5))
    report.add([Suspicion(Defect.ORPHAN_OBJECT, "", segment=bytes(16))])
    assert [finding.text for finding in report.findings[MAX_LISTED:]] == ["and 5 more", ""]
    assert {finding.kind for finding in report.findings} == {"gap", "orphan_object"}


def test_where() -> None:
    assert Suspicion(Defect.ORPHAN_OBJECT, "", segment=bytes(16)).where == "0" * 32
    assert Suspicion(Defect.UNREADABLE, "", shard=7).where == "shard 7"
    assert Suspicion(Defect.UNREADABLE, "3 rows were not read").where == ""


def test_suspicions_are_bounded_in_number() -> None:
    suspicions = Suspicions()
    suspicions.add(Suspicion(Defect.GAP, "", LOG) for _ in range(MAX_SUSPICIONS + 3))
    suspicions.add([Suspicion(Defect.ORPHAN_OBJECT, "", segment=bytes(16))])
    assert len(suspicions) == MAX_SUSPICIONS + 1
    assert suspicions.left_out == {Defect.GAP: 3}
    assert [one.defect for one in suspicions.of(Defect.ORPHAN_OBJECT)] == [Defect.ORPHAN_OBJECT]
