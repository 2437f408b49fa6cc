"""The class that `spark.dataSource.register` takes.

Spark starts a Python process for each question it has: each loads no more than it needs.
"""

from __future__ import annotations

import sys

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pipeline.source.options import parse_options
from pipeline.source.schema import check_schema, schema_of

_FILTERING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class DisklessDataSource(DataSource):
    """Diskless topics as a table or a stream of records, with the columns and options of Spark's Kafka source.

    `spark.dataSource.register(DisklessDataSource)`, then `spark.read.format("diskless").option("config", FILE)
    .option("subscribe", "orders").load()`; see docs/pipeline/source.md.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "diskless"

    def schema(self) -> StructType:
        """With the option `includeHeaders` as it is; options are checked here, before anything is read."""
        return schema_of(include_headers=parse_options(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch query. Raises SourceError."""
        from pipeline.source.reach import settings_of
        from pipeline.source.reader import DisklessReader, FilteringReader

        options = parse_options(self.options, kind="batch")
        check_schema(schema)
        # Spark rejects a reader that takes filters if `spark.sql.python.filterPushdown.enabled` is off, and does not
        # pass the setting on. But filters come in a process of their own kind.
        kind = FilteringReader if options.push_filters and _FILTERING_WORKER in sys.modules else DisklessReader
        return kind(schema, options, settings_of(options.config))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a stream. Raises SourceError."""
        from pipeline.source.reach import settings_of
        from pipeline.source.stream import DisklessStreamReader

        options = parse_options(self.options, kind="stream")
        check_schema(schema)
        return DisklessStreamReader(schema, options, settings_of(options.config))
