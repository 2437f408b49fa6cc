"""Parts of a URL that nobody may see."""

from __future__ import annotations

import pytest

from proxy.config.values import masked, masked_words, parse_node_ids


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://redis.example.com:6379/0", "redis://redis.example.com:6379/0"),
        ("redis://user:hush@redis.example.com:6379", "redis://***@redis.example.com:6379"),
        ("rediss://:hu/s@h@redis.example.com:6379", "rediss://***@redis.example.com:6379"),
        ("redis://redis.example.com/0?password=hush&db=1", "redis://redis.example.com/0?password=***&db=1"),
        ("unix:///run/redis.sock?db=1&Password=hush", "unix:///run/redis.sock?db=1&Password=***"),
        ("s3://bucket/wal", "s3://bucket/wal"),
        ("rack-a", "rack-a"),
        ("user:hush@redis.example.com:6379", "***@redis.example.com:6379"),
        ("redis:/user:hu//s@h@redis.example.com:6379", "***@redis.example.com:6379"),
        ("user:hush//hush@redis.example.com", "***@redis.example.com"),
    ],
)
def test_secrets_of_urls_are_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


def test_a_text_loses_the_secrets_of_each_of_its_words() -> None:
    text = "redis://u:hush/hush@one refused; 'u:a@hush@two' too,\nas a@b did"
    assert masked_words(text) == "redis://***@one refused; ***@two' too,\nas ***@b did"
    assert masked_words("why not (it is /var/lib/wal)") == "why not (it is /var/lib/wal)"


@pytest.mark.parametrize("text", ["1-10000000", "1-9999999999999", "65536", "1-3,70000"])
def test_an_endless_range_of_node_ids_is_rejected_before_it_is_built(text: str) -> None:
    with pytest.raises(ValueError, match="goes above 65535"):
        parse_node_ids(text)
