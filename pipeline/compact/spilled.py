"""The bytes that Spark wrote to executors' disks because they did not fit into their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Spilled:
    """Counts from its making on, over all stages of the session that Spark still remembers (the newest thousand)."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._before = set(self._bytes())

    def disk_bytes(self) -> int:
        """So far."""
        return sum(spilled for stage, spilled in self._bytes().items() if stage not in self._before)

    def _bytes(self) -> dict[tuple[int, int], int]:
        """Return the bytes by stage and attempt, from the store behind Spark's web page, which exists without the page,
        too."""
        context = self._spark.sparkContext
        gateway, jvm = context._gateway, context._jvm
        assert gateway is not None
        assert jvm is not None
        none = gateway.new_array(jvm.double, 0)
        stages = (
            context._jsc.sc().statusStore().stageList(None, False, False, none, jvm.java.util.ArrayList()).iterator()
        )
        found: dict[tuple[int, int], int] = {}
        while stages.hasNext():
            stage = stages.next()
            found[stage.stageId(), stage.attemptId()] = stage.diskBytesSpilled()
        return found
