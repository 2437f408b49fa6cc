"""Errors of a session before Spark starts; the other tests are in tests/pipeline."""

from __future__ import annotations

import pytest

from pipeline.errors import PipelineError
from pipeline.session import spark_session


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the session that other tests share, which would be used otherwise."""
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)


@pytest.mark.parametrize("given", [{"master": "local[1]"}, {"conf": {"spark.driver.memory": "9g"}}])
def test_spark_submit_gets_master_and_conf_itself(monkeypatch: pytest.MonkeyPatch, given: dict[str, object]) -> None:
    """Otherwise spark-submit's own values would be overridden, or the job's ignored, without any notice."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("PYSPARK_GATEWAY_SECRET", "none")
    with (
        pytest.raises(PipelineError, match="give --master and --conf to spark-submit, not"),
        spark_session("x", **given),
    ):  # type: ignore[arg-type]
        pass


def test_a_user_that_java_would_not_know_is_reported_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_001)
    with (
        pytest.raises(PipelineError, match=r"^uid 4000000001 has no entry in /etc/passwd; add one"),
        spark_session("x", conf={"spark.driver.memory": "none"}),
    ):
        pass
