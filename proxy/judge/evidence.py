"""The operations that concern the findings, collected in a second pass over the history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from proxy.judge.findings import Finding, Verdict
from proxy.judge.operations import Ack, End, Ended, Fail, Operation, Poll, Send

MAX_OPERATIONS = 24
"""Operations of one finding."""

MAX_ELEMENTS = 8
"""Elements of a list in an operation, such as the records of a poll."""

Place = tuple[str, int, int]
"""Topic, partition and offset."""


def with_operations(verdict: Verdict, history: Iterable[Operation]) -> Verdict:
    """Return the verdict with the operations of each finding."""
    collecting = _Collecting(verdict.findings)
    for line, operation in enumerate(history, 1):
        for index, excerpt in collecting.concerned(operation, line):
            collecting.add(index, line, operation, excerpt)
    findings = [
        replace(finding, operations=tuple(collecting.operations[index]))
        for index, finding in enumerate(verdict.findings)
    ]
    return replace(verdict, findings=tuple(findings))


class _Collecting:
    def __init__(self, findings: Iterable[Finding]) -> None:
        self.operations: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        self._by_producer: defaultdict[int, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        """Findings by producer and number."""
        self._by_place: defaultdict[Place, list[int]] = defaultdict(list)
        self._by_line: defaultdict[int, list[int]] = defaultdict(list)
        self._by_transaction: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        for index, finding in enumerate(findings):
            for value in finding.values:
                self._by_producer[value.client][value.number].append(index)
            for offset in finding.offsets:
                self._by_place[finding.topic, finding.partition, offset].append(index)
            for line in finding.lines:
                self._by_line[line].append(index)

    def add(self, index: int, line: int, operation: Operation, excerpt: dict[str, Any]) -> None:
        """Keep an operation of a finding; of one with many fields, the part that concerns the finding."""
        kept = self.operations[index]
        if kept and kept[-1]["line"] == line:
            for name, part in excerpt.items():
                kept[-1][name] = kept[-1][name] + part
        elif len(kept) < MAX_OPERATIONS:
            fields = {**operation.model_dump(mode="json", exclude=set(excerpt)), **excerpt}
            kept.append({"line": line, **{name: _cut(field) for name, field in fields.items()}})

    def concerned(self, operation: Operation, line: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the findings that an operation concerns, and its fields that are cut to what concerns them."""
        for index in self._by_line.get(line, ()):
            yield index, {}
        match operation:
            case Send():
                yield from self._send(operation)
            case Ack():
                numbers = self._by_producer[operation.client]
                for number, offset in operation.records:
                    place = operation.topic, operation.partition, offset
                    for index in {*numbers.get(number, ()), *self._by_place.get(place, ())}:
                        yield index, {"records": [[number, offset]]}
            case Fail():
                numbers = self._by_producer[operation.client]
                for number in operation.numbers:
                    for index in numbers.get(number, ()):
                        yield index, {"numbers": [number]}
            case Poll():
                yield from self._poll(operation)
            case End() | Ended():
                for index in sorted(self._by_transaction.get((operation.client, operation.transaction), ())):
                    yield index, {}

    def _send(self, send: Send) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, indexes in self._by_producer[send.client].items():
            if send.first <= number < send.first + send.count:
                for index in indexes:
                    self._by_transaction[send.client, send.transaction].add(index)
                    yield index, {}

    def _poll(self, poll: Poll) -> Iterator[tuple[int, dict[str, Any]]]:
        for offset, client, number in poll.records:
            numbers = self._by_producer.get(client)
            indexes = set(numbers.get(number, ())) if numbers else set()
            indexes.update(self._by_place.get((poll.topic, poll.partition, offset), ()))
            for index in indexes:
                yield index, {"records": [[offset, client, number]]}


def _cut(field: Any) -> Any:
    return field[:MAX_ELEMENTS] if isinstance(field, list) else field
