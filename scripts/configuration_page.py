"""The page of all settings, `docs/configuration.md`: the output of `diskless-proxy config explain` in one place."""

from __future__ import annotations

from proxy.config.reference import Setting, all_settings, sections
from proxy.config.units import COUNT

_TOP = """\
# Configuration

`diskless-proxy run --config FILE` reads one YAML file. Environment variables override it. This page lists all
settings, and `diskless-proxy config explain NAME` prints the entry of one. `diskless-proxy config show --config FILE`
prints the values that a file leads to. Most settings have a default that you can keep: the example below is a
complete file.

```yaml
rack: rack-a                      # broker.rack of the brokers in its zone
listeners:
  host: 0.0.0.0
  advertised_host: proxy.rack-a.example.com
  bootstrap_port: 19092           # clients' bootstrap.servers
  broker_port_start: 19100        # broker 1 is port 19101, and so on
  broker_node_ids: "0-9"
brokers:
  bootstrap: ["broker-1.example.com:9092", "broker-2.example.com:9092"]
redis:
  url: redis://redis.example.com:6379
storage:
  url: s3://my-bucket/wal
  region: eu-central-1
diskless.append.commit.interval.ms: 250
```

Editors and other checkers can use the [JSON schema of the file](settings.schema.json), which `diskless-proxy config
schema` prints. Many editors read it from a comment in the file's first line:
`# yaml-language-server: $schema=settings.schema.json`. The chart's values schema contains it.

Copy one of these examples to start with:

| where | file |
|---|---|
| AWS: S3, credentials of the instance's or pod's role | [aws.yaml](../deploy/config/aws.yaml) |
| Google Cloud: Cloud Storage, default credentials | [gcp.yaml](../deploy/config/gcp.yaml) |
| Azure: Blob Storage, managed or workload identity | [azure.yaml](../deploy/config/azure.yaml) |
| a store of your own: MinIO, Ceph, SeaweedFS, versitygw | [minio.yaml](../deploy/config/minio.yaml) |
| Amazon MSK with IAM | [msk.yaml](../deploy/config/msk.yaml) |
| one TLS port for all brokers, selected by [names](sni.md) | [sni.yaml](../deploy/config/sni.yaml) |
| brokers that Strimzi runs in Kubernetes | [strimzi.yaml](../deploy/config/strimzi.yaml) |
| Amazon MemoryDB ([which store](operations/redis.md#which-service)) | [memorydb.yaml](../deploy/config/memorydb.yaml) |
| Amazon ElastiCache | [elasticache.yaml](../deploy/config/elasticache.yaml) |
| Google Memorystore for Valkey | [memorystore.yaml](../deploy/config/memorystore.yaml) |
| Azure Managed Redis | [azure-managed-redis.yaml](../deploy/config/azure-managed-redis.yaml) |
| Valkey by an operator for Kubernetes | [valkey-operator.yaml](../deploy/config/valkey-operator.yaml) |

An environment variable is `DISKLESS_PROXY_` and the setting's path in capitals, joined by two underscores:
`DISKLESS_PROXY_LISTENERS__BOOTSTRAP_PORT=9092`, `DISKLESS_PROXY_DISKLESS_APPEND_COMMIT_INTERVAL_MS=100`. One variable
can also hold a whole section as JSON. An unknown name is an error in the file and in the variable of a section. A
variable that names no section and no setting is ignored.

Redis or Valkey must run with `maxmemory-policy noeviction` and `appendonly yes`, and should run with `appendfsync
always`, because only the store knows the order of the records. With a [journal](journal.md) it needs only
`noeviction`.

## Changes without a restart

`kill -HUP` (`systemctl reload`) makes the proxy read its file again. Environment variables keep the values of its
start. With workers, send the signal to the parent, which passes the settings on.

- A file with a mistake changes nothing. `settings_not_reloaded` in the log has the reason.
- Otherwise all settings that are marked *reload* below change together. `settings_reloaded` in the log names those that
  changed. No connection is closed, and no request is interrupted.
- Settings that are marked *restart* keep their values. `settings_need_restart` names them at each reload until the
  proxy is restarted.

New limits of a connection apply to new connections (`limits.max_frame_bytes`, `limits.write_buffer_bytes`,
`limits.max_in_flight_requests`, `limits.max_response_bytes_per_connection`, `authorization_cache_ms`). A wait that
has begun keeps its end. A smaller cache evicts blocks at once, except one. With a smaller
memory budget, a proxy reads no new requests until it is below the budget. Topics with byte counters of their own keep
them.

A reload sets the log level only if `log_level` in the file has changed. A level that was set through the admin port
stays otherwise, and `settings_reloaded` reports it (`log_level_stays`).

Change settings on which all proxies of a fleet should agree (`garbage.*`, `racks.*`, `default_diskless_topics`) in
the file of each proxy. [0048](decisions/0048-reload-in-place.md) has the reasons.

"""


def page() -> str:
    """Return the whole page."""
    of_sections = sections()
    names = [name for name in of_sections if any(one.section == name for one in all_settings())]
    contents = ["[the top of the file](#the-top-of-the-file)", *(f"[`{name}`](#{_anchor(name)})" for name in names)]
    parts = [_TOP, "## Sections\n\n", " · ".join(contents), "\n\n"]
    parts += ["## The top of the file\n\nThese settings belong to no section.\n\n", *_settings("")]
    for name in names:
        parts += [f"## `{name}`\n\n{_section_text(name, of_sections[name])}\n\n", *_settings(name)]
    return "".join(parts).rstrip("\n") + "\n"


def _section_text(name: str, text: str) -> str:
    missing = [one for one in all_settings() if one.is_section and one.name == name]
    return f"{text} {missing[0].text} The section is optional." if missing else text


def _settings(section: str) -> list[str]:
    return [_entry(one) for one in all_settings() if one.section == section and not one.is_section]


def _entry(one: Setting) -> str:
    kind = one.type if not one.unit else one.unit if one.unit != COUNT else "number"
    facts = [kind + (f": {one.range}" if one.range else ""), _default(one)]
    facts += ["*reload*" if one.reloadable else "*restart*", f"`{one.variable}`"]
    return f"### `{one.name}`\n\n{' · '.join(facts)}\n\n{one.text}\n\n"


def _default(one: Setting) -> str:
    if one.required:
        return "**required**"
    if one.default_text in ("empty", "missing"):
        return f"default {one.default_text}"
    value, bracket, eased = one.default_text.partition(" (")
    return f"default `{value}`{bracket}{eased}"


def _anchor(heading: str) -> str:
    return heading.replace(".", "")
