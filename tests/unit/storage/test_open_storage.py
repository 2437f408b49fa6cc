"""The class that `storage.url` and `diskless.storage.class.name` choose."""

from __future__ import annotations

import subprocess
import sys

import pytest

from proxy.config import Storage
from proxy.storage import StorageError, open_storage
from proxy.storage.cloud import CloudStorage
from proxy.storage.file import FileStorage
from proxy.storage.s3 import S3Storage


@pytest.mark.parametrize(
    ("url", "class_name", "expected"),
    [
        ("file:///dir", "", FileStorage),
        ("s3://bucket/prefix", "", S3Storage),
        ("gs://bucket/prefix", "", CloudStorage),
        ("az://account/container", "", CloudStorage),
        ("file:///dir", "file", FileStorage),
        ("s3://bucket", "s3", S3Storage),
        ("file:///dir", "proxy.storage.file:FileStorage", FileStorage),
    ],
)
def test_the_class_is_chosen_by_name_or_scheme(url, class_name, expected):
    assert type(open_storage(Storage(url=url), class_name)) is expected


@pytest.mark.parametrize(
    ("url", "class_name", "match"),
    [
        ("/dir", "", r"'/dir' has no known scheme.*file:///dir or s3://"),
        ("ftp://bucket", "", r"'ftp://bucket' has no known scheme"),
        ("gs:///prefix", "", r"does not name a bucket; use gs://bucket/prefix or az://account/container/prefix"),
        ("az://account", "", r"does not name a bucket"),
        ("s3://bucket", "gcs", r"'gcs' is unknown; use file, s3, gs, az or module:Class"),
        ("s3://bucket", "no.such.module:Class", r"can't be loaded: No module named 'no'"),
        ("s3://bucket", "proxy.storage.file:Nothing", r"can't be loaded: .*Nothing"),
        ("s3://bucket", "file", r"does not name a directory"),
        ("file:///dir", "s3", r"does not name a bucket"),
        ("s3:///prefix", "", r"does not name a bucket"),
    ],
)
def test_errors_say_what_to_use(url, class_name, match):
    with pytest.raises(StorageError, match=match):
        open_storage(Storage(url=url), class_name)


def test_the_s3_library_is_not_loaded_for_files():
    code = (
        "import sys; from proxy.config import Storage; from proxy.storage import open_storage;"
        "open_storage(Storage(url='file:///dir')); sys.exit('aiobotocore' in sys.modules or 'obstore' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
