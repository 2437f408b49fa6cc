"""The parent of workers, when they end during one of its messages."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import pytest
import uvloop
from prometheus_client.core import CounterMetricFamily

from proxy.admin.api.figures import Figures, added
from proxy.admin.api.question import ProcessAnswer, Question, Resource
from proxy.process.ports import HeldPorts
from proxy.server.worker_messages import Ask, SetLogLevel, write_message
from proxy.server.workers import Workers, _Worker
from proxy.telemetry.logs import log_level, set_log_level
from proxy.telemetry.recent import RECENT_ERRORS
from tests.unit.process.test_ports import settings_of


async def worker(code: str) -> _Worker:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    reader = asyncio.StreamReader()
    return _Worker(process, reader, None)


@pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux")
async def test_a_worker_that_has_just_ended_does_not_stop_the_end_of_the_others(monkeypatch):
    """If no worker can start, all of them report this and end at the same moment."""
    monkeypatch.setattr(HeldPorts, "__init__", lambda ports, settings: None)
    monkeypatch.setattr(HeldPorts, "release", lambda ports: None)
    workers = Workers(settings_of())
    ended, running = await worker("pass"), await worker("import time; time.sleep(60)")
    await ended.process.wait()
    workers._workers = {1: ended, 2: running}
    workers._end(HeldPorts(workers.settings))
    assert await running.process.wait() < 0


def test_a_message_to_a_worker_that_has_ended_is_an_expected_error() -> None:
    async def ask_after_its_end() -> None:
        ours, theirs = socket.socketpair()
        theirs.close()
        _, writer = await asyncio.open_unix_connection(sock=ours)
        writer.close()
        await writer.wait_closed()
        with pytest.raises(ConnectionError, match="ended"):
            write_message(writer, Ask.METRICS)

    uvloop.run(ask_after_its_end())


async def test_a_remark_of_one_worker_is_returned_although_others_have_none() -> None:
    class Answers:
        def __init__(self, answer: str | OSError | None) -> None:
            self.answer = answer

        async def ask(self, question: Ask) -> str | None:
            assert question is Ask.REMARK
            if isinstance(self.answer, OSError):
                raise self.answer
            return self.answer

    workers = Workers(settings_of())
    workers._workers = {1: Answers(None), 2: Answers(ConnectionError("it has ended"))}  # type: ignore[dict-item]
    assert await workers.remark() is None
    workers._workers[3] = Answers("a shard is fenced")  # type: ignore[assignment]
    assert await workers.remark() == "a shard is fenced"


async def test_workers_serve_classic_topics_while_none_of_them_is_ready() -> None:
    answers = {Ask.WHY_NOT_READY: "coordinator: gone", Ask.WHY_NOT_SERVING: None}

    class One(_Worker):
        def __init__(self) -> None:
            self.has_been_ready = True

        async def ask(self, question: object) -> str | None:
            assert isinstance(question, Ask)
            return answers[question]

    workers = Workers(settings_of())
    workers._workers = {1: One()}
    assert await workers.why_not_serving() == "starting"
    workers._not_ready = None
    assert await workers.why_not_ready() == "worker 1: coordinator: gone"
    assert await workers.why_not_serving() is None
    answers[Ask.WHY_NOT_SERVING] = "background work ended"
    assert await workers.why_not_serving() == "worker 1: background work ended"


class Counting:
    """A worker that has counted this much, or is silent."""

    has_answered = True

    def __init__(self, counted: float | None) -> None:
        self.counted = counted

    async def ask(self, question: object) -> Any:
        if self.counted is None:
            raise TimeoutError
        if question is Ask.METRICS:
            return [CounterMetricFamily("diskless_proxy_requests", "Requests.", value=self.counted)], []
        return [ProcessAnswer(None, Figures(str(id(self)), counters={"requests_total": self.counted}))]


async def test_totals_do_not_fall_when_a_worker_is_silent_or_another_one_takes_its_place() -> None:
    workers = Workers(settings_of())

    async def totals() -> set[float]:
        page = (await workers.metrics()).decode()
        (line,) = [line for line in page.splitlines() if line.startswith("diskless_proxy_requests_total ")]
        answers = await workers.answers(Question(Resource.FIGURES))
        return {float(line.split()[1]), added(one.value for one in answers).counters["requests_total"]}

    ones = workers._workers = {1: Counting(1_000), 2: Counting(3_000)}  # type: ignore[assignment]
    assert await totals() == {4_000}
    ones[1].counted = None
    assert await totals() == {4_000}
    del ones[1]
    workers._carried.end(1)
    assert await totals() == {4_000}
    ones[1] = Counting(7)
    assert await totals() == {4_007}


async def test_the_last_figures_of_a_worker_that_ends_are_not_counted_twice() -> None:
    workers = Workers(settings_of())

    class Ending(Counting):
        async def ask(self, question: object) -> Any:
            answer = await super().ask(question)
            if ending:
                workers._workers[1] = Counting(0)  # type: ignore[assignment]
                workers._carried.end(1)
            return answer

    ending = False
    workers._workers = {1: Ending(10)}  # type: ignore[dict-item]
    assert b"requests_total 10.0" in await workers.metrics()
    ending = True
    assert b"requests_total 10.0" in await workers.metrics()


async def test_all_workers_are_asked_at_once_so_that_several_that_hang_take_no_longer_than_one() -> None:
    asked, questions, everyone = 0, 0, asyncio.Event()

    class One:
        has_been_ready = has_answered = True

        async def ask(self, question: object) -> Any:
            nonlocal asked
            asked += 1
            if asked == questions:
                everyone.set()
            async with asyncio.timeout(60):
                await everyone.wait()
            return None if question is not Ask.METRICS else ([], [])

        async def complaint(self, question: object) -> Any:
            return await self.ask(question)

    workers = Workers(settings_of())
    workers._workers = {number: One() for number in (1, 2, 3)}  # type: ignore[misc]
    workers._not_ready = None
    # For the metrics, each worker is also asked whether it is ready.
    for ask, questions in ((workers.why_not_ready, 3), (workers.remark, 3), (workers.metrics, 6)):
        asked, everyone = 0, asyncio.Event()
        await ask()
        assert asked == questions, ask


async def test_a_proxy_of_which_a_worker_hangs_is_not_ready_to_prometheus_either() -> None:
    class One(_Worker):
        def __init__(self) -> None:
            self.has_been_ready = True
            self.hangs = False

        async def ask(self, question: object) -> Any:
            if self.hangs:
                raise TimeoutError
            return ([], []) if question is Ask.METRICS else None

    one, other = One(), One()
    workers = Workers(settings_of())
    workers._workers = {1: one, 2: other}
    workers._not_ready = None
    assert b"diskless_proxy_ready 1.0" in await workers.metrics()
    other.hangs = True
    assert b"diskless_proxy_ready 0.0" in await workers.metrics()
    one.hangs = True
    assert b"diskless_proxy_ready 0.0" in await workers.metrics()


async def test_a_request_of_the_admin_port_goes_to_all_and_silent_workers_are_left_out() -> None:
    class One:
        has_answered = False

        def __init__(self, answer: list[ProcessAnswer] | OSError) -> None:
            self.answer = answer
            self.asked: list[object] = []

        async def ask(self, question: object) -> list[ProcessAnswer]:
            self.asked.append(question)
            if isinstance(self.answer, OSError):
                raise self.answer
            return self.answer

    RECENT_ERRORS.clear()
    workers = Workers(settings_of())
    ones = {1: One([ProcessAnswer(None, "a")]), 2: One(TimeoutError()), 3: One([])}
    workers._workers = ones  # type: ignore[assignment]
    question = Question(Resource.TOPICS)
    assert await workers.answers(question) == [ProcessAnswer(1, "a")]
    assert [one.asked for one in ones.values()] == [[question]] * 3
    assert await workers.answers(Question(Resource.ERRORS)) == [ProcessAnswer(None, []), ProcessAnswer(1, "a")]
    before = log_level()
    await workers.set_log_level("error")
    assert log_level() == "error"
    assert [one.asked[-1] for one in ones.values()] == [SetLogLevel("error")] * 3
    set_log_level(before)
