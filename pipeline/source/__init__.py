"""`format("diskless")`: Spark reads diskless topics straight from object storage, in batch and streams."""
