"""Rollups: what a proxy process moved in an interval, as Parquet in object storage.

`counted` takes the differences of the process's counters, `table` names the columns, `parquet` writes the format,
`files` names the objects, `writer` is the background work, `expiry` is the housekeeper's part. Who reads them is
`pipeline.traffic`.
"""
