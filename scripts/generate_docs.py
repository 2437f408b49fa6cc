"""Write the pages of `docs/` that follow from the code: `configuration.md` and `apis.md`.

`python scripts/generate_docs.py`; with `--check` nothing is written, and the exit code is 1 where a page is old.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from proxy.apis import API_TABLE, Treatment
from proxy.config import Settings

DOCS = Path(__file__).parent.parent / "docs"

_KAFKA_NAMES = ("diskless_", "enable_under_replicated_topic_creation", "producer_id_expiration_ms")

_CONFIGURATION = """\
# Configuration

`diskless-proxy run --config FILE` reads one YAML file; environment variables stand over it. This page is generated from
the settings model (`proxy/config/`).

```yaml
rack: rack-a                      # broker.rack of the brokers beside this proxy
listeners:
  host: 0.0.0.0
  advertised_host: proxy.rack-a.example.com
  bootstrap_port: 19092           # clients' bootstrap.servers
  broker_port_start: 19100        # broker 1 is port 19101, and so on
  broker_node_ids: "1-9"
brokers:
  bootstrap: ["broker-1.example.com:9092", "broker-2.example.com:9092"]
redis:
  url: redis://redis.example.com:6379
storage:
  url: s3://my-bucket/wal
  region: eu-central-1
diskless.append.commit.interval.ms: 250
```

An environment variable is `DISKLESS_PROXY_` and the setting's path in capitals, joined by two underscores:
`DISKLESS_PROXY_LISTENERS__BOOTSTRAP_PORT=9092`, `DISKLESS_PROXY_DISKLESS_APPEND_COMMIT_INTERVAL_MS=100`.

Redis or Valkey must run with `maxmemory-policy noeviction` and `appendonly yes`, best with `appendfsync always`: it
orders the records, and until the journal comes it is the only one that knows their order.

| setting | default | what it is |
|---|---|---|
"""

_APIS = """\
# APIs

What the proxy does with each API of Kafka 4.x; generated from `proxy/apis.py`. *pass*: request and response stream
through. *rewrite*: the broker answers, the answer is changed. *intercept*: answered here, wholly or in part. *hide*:
for brokers among themselves, not served to clients. Versions beyond those named are not offered.

| key | API | versions | treatment | why |
|---|---|---|---|---|
"""


def configuration() -> str:
    """The page of all settings."""
    return _CONFIGURATION + "".join(_rows(Settings, ""))


def apis() -> str:
    """The page of all APIs."""
    rows = [
        f"| {api.key} | {api.name} | "
        f"{'–' if api.treatment is Treatment.HIDE else f'{api.lowest_version}–{api.highest_version}'} | "
        f"{api.treatment.value} | {api.reason} |\n"
        for api in API_TABLE.values()
    ]
    return _APIS + "".join(rows)


def _rows(model: type[BaseModel], prefix: str) -> list[str]:
    rows = []
    for name, field in model.model_fields.items():
        section = _section(field.annotation)
        if section is not None:
            if field.default is None:  # one that may be missing
                text = " ".join((field.description or "").split())
                rows.append(f"| `{prefix}{name}` | missing | {text} |\n")
            rows += _rows(section, f"{prefix}{name}.")
            continue
        shown = name.replace("_", ".") if name.startswith(_KAFKA_NAMES) else f"{prefix}{name}"
        text = " ".join((field.description or "").split())
        default = field.get_default(call_default_factory=True, validated_data={})
        rows.append(f"| `{shown}` | {_default(default)} | {text} |\n")
    return rows


def _section(annotation: Any) -> type[BaseModel] | None:
    """The model of a section, which may be optional."""
    for one in (annotation, *(get_args(annotation) if get_origin(annotation) is UnionType else ())):
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one
    return None


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    return "empty" if value == "" or value == SecretStr("") else f"`{value}`"


def main() -> int:
    """Write, or check."""
    stale = []
    for name, text in (("configuration.md", configuration()), ("apis.md", apis())):
        path = DOCS / name
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text)
    if stale and "--check" in sys.argv:
        print(f"not current: {', '.join(stale)}; run python scripts/generate_docs.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
