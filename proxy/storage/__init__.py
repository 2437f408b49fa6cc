"""Object storage as a plugin.

What it promises is `ObjectStorage`; `open_storage` makes the one that the settings name.
"""

from __future__ import annotations

from importlib import import_module
from urllib.parse import urlsplit

from proxy.config import Storage
from proxy.storage.interface import ObjectMissing, ObjectStorage, StorageError

__all__ = ["ObjectMissing", "ObjectStorage", "StorageError", "open_storage"]

CLASSES = {
    "file": "proxy.storage.file:FileStorage",
    "s3": "proxy.storage.s3:S3Storage",
    "gs": "proxy.storage.cloud:CloudStorage",
    "az": "proxy.storage.cloud:CloudStorage",
}
"""Classes by the scheme of `storage.url`, which is also the name in `diskless.storage.class.name`."""


def open_storage(settings: Storage, class_name: str = "") -> ObjectStorage:
    """Return the storage that `class_name` names; it is not connected yet, `open` does that.

    `class_name`: `diskless.storage.class.name` (KIP-1163): `file`, `s3`, `gs`, `az`, or `module:Class` of a class that
    is made with the `storage` settings as its one argument. If it is empty, the scheme of `storage.url` chooses. The
    module of a storage is imported here, so that its library costs nothing if it is not used.

    Raises StorageError if the name can't be followed.
    """
    scheme = urlsplit(settings.url).scheme
    name = class_name or scheme
    path = CLASSES.get(name, name)
    module_name, colon, attribute = path.partition(":")
    if not colon or not module_name or not attribute:
        raise StorageError(
            f"diskless.storage.class.name {class_name!r} is unknown; use file, s3, gs, az or module:Class"
            if class_name
            else f"storage.url {settings.url!r} has no known scheme; use file:///dir or "
            "s3://bucket/prefix, gs://bucket/prefix, az://account/container/prefix, or name a class in "
            "diskless.storage.class.name"
        )
    try:
        made = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise StorageError(
            f"diskless.storage.class.name {path!r} can't be loaded: {error}; install it next to the proxy"
        ) from error
    storage: ObjectStorage = made(settings)
    return storage
