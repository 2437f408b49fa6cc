"""The columns: those of Spark's Kafka source (`KafkaRecordToRowConverter`), all nullable as there."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.source.errors import OptionError

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
FULL = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(_HEADER)),
    ]
)


def schema_of(*, include_headers: bool) -> StructType:
    """Return the schema for a query without one of its own."""
    return FULL if include_headers else StructType(FULL.fields[:-1])


def check_schema(schema: StructType) -> None:
    """Raise OptionError if a query's own schema is not a subset of the columns, with their types.

    Such a schema leaves out columns at the source: Spark passes no pruning to Python sources.
    """
    for field in schema.fields:
        known = next((one for one in FULL.fields if one.name == field.name), None)
        if known is None or known.dataType != field.dataType:
            columns = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in FULL.fields)
            raise OptionError(
                f"the schema asks for {field.name} {field.dataType.simpleString()}; there are {columns}: name some of "
                "these, or no schema"
            )
