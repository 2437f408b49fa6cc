"""Make a bucket unless it is there: `make_bucket.py ENDPOINT BUCKET`; keys in the environment, as AWS names them."""

from __future__ import annotations

import sys

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

THERE = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}


def main(endpoint_url: str, bucket: str) -> None:
    """Try once. If it fails, print a line and exit with code 1, so that compose starts it again."""
    config = Config(
        s3={"addressing_style": "path"}, retries={"total_max_attempts": 2}, connect_timeout=3, read_timeout=10
    )
    session = botocore.session.Session()
    client = session.create_client("s3", region_name="us-east-1", endpoint_url=endpoint_url, config=config)
    try:
        client.create_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] not in THERE:
            sys.exit(f"bucket {bucket} could not be made at {endpoint_url}: {error}")
    except BotoCoreError as error:
        sys.exit(f"{endpoint_url} can't be reached: {error}")
    print(f"bucket {bucket} is there")


if __name__ == "__main__":
    main(*sys.argv[1:])
