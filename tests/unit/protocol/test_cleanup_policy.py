"""Values of `cleanup.policy`."""

from __future__ import annotations

import pytest

from proxy.protocol.cleanup_policy import cleanup_policies, is_compacted, is_deleted_from


@pytest.mark.parametrize(
    ("value", "listed", "compacted", "deleted"),
    [
        (None, ("delete",), False, True),
        ("", (), False, False),
        ("delete", ("delete",), False, True),
        ("compact", ("compact",), True, False),
        ("compact,compact", ("compact",), True, False),
        (" compact ,delete", ("compact", "delete"), True, True),
    ],
)
def test_policies(value: str | None, listed: tuple[str, ...], compacted: bool, deleted: bool) -> None:
    configs = {"retention.ms": "1"} | ({} if value is None else {"cleanup.policy": value})
    assert cleanup_policies(configs) == listed
    assert (is_compacted(configs), is_deleted_from(configs)) == (compacted, deleted)
