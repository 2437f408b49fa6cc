"""The misconfigurations that docs/troubleshooting.md lists, each with the line that reports it.

`python -m tests.support.misconfigurations` prints the table of the page. Tests produce each misconfiguration for real.
If one needs wrong brokers, stores or buckets, its test is in the folder that has them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Needs(Enum):
    """Servers that are needed to produce the misconfiguration."""

    NOTHING = "a settings file"
    STACK = "brokers, store and storage"
    STORE = "a store of its own"
    SECURE = "brokers with TLS, SASL and ACLs"
    BUCKET = "an S3 server"


@dataclass(frozen=True)
class Misconfiguration:
    name: str
    what: str
    line: str
    """Line that reports it, with the demo's addresses; `…` stands for any text."""
    needs: Needs = Needs.STACK
    by_run: bool = False
    """True if `run` ends with this line too; otherwise it waits, or serves and warns."""
    is_warning: bool = False
    """True if `check` exits with 1 only with `--strict`."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return a pattern of the line that allows any address, port and folder."""
        escaped = re.escape(self.line).replace("…", ".*?")
        escaped = re.sub(r"127\\\.0\\\.0\\\.1:\d+", r"127\\.0\\.0\\.1:\\d+", escaped)
        return re.compile(escaped.replace(re.escape("/etc/diskless-proxy/"), r"\S*?/"))


_N, _STORE, _SECURE, _BUCKET = Needs.NOTHING, Needs.STORE, Needs.SECURE, Needs.BUCKET

MISCONFIGURATIONS = (
    Misconfiguration(
        "no_file",
        "the settings file is not there",
        "can't read /etc/diskless-proxy/none.yaml: No such file or directory; name an existing file with --config or "
        "DISKLESS_PROXY_CONFIG",
        _N,
        by_run=True,
    ),
    Misconfiguration(
        "no_yaml",
        "a typing error in the YAML",
        "/etc/diskless-proxy/proxy.yaml is not YAML: line 2, column 6: …; fix it there",
        _N,
        by_run=True,
    ),
    Misconfiguration(
        "said_twice",
        "a section or a setting that is there twice",
        "/etc/diskless-proxy/proxy.yaml is not YAML: line 5, column 1: limits is there already, in line 2, and only "
        "one of them would count; fix it there",
        _N,
        by_run=True,
    ),
    Misconfiguration(
        "two_spellings",
        "a setting in both of its spellings",
        "/etc/diskless-proxy/proxy.yaml: diskless_append_commit_interval_ms: is also there as "
        "diskless.append.commit.interval.ms; remove one of the two",
        _N,
        by_run=True,
    ),
    Misconfiguration(
        "quotes",
        "a rack, or another text, that YAML takes for a number",
        "/etc/diskless-proxy/proxy.yaml: rack: Input should be a valid string (it is 1); put it in quotes",
        _N,
        by_run=True,
    ),
    Misconfiguration(
        "hidden_secret",
        "what `config show` has printed, with `***` for a secret",
        "/etc/diskless-proxy/proxy.yaml: redis.url: has *** instead of a secret, as config show prints it; "
        "write the secret there",
        _N,
        by_run=True,
    ),
    Misconfiguration(
        "unknown_setting",
        "a setting that does not exist",
        "/etc/diskless-proxy/proxy.yaml: listeners.bootstrap_prot: no such setting; …",
        _N,
        by_run=True,
    ),
    Misconfiguration(
        "missing_setting",
        "a setting that has to be there is not",
        "/etc/diskless-proxy/proxy.yaml: redis: is missing; add it, see docs/configuration.md for an example",
        _N,
        by_run=True,
    ),
    Misconfiguration(
        "unit",
        "a number with its unit, or no number",
        "/etc/diskless-proxy/proxy.yaml: diskless.append.commit.interval.ms: Input should be a valid integer "
        "(it is '250ms'); write a number within its range, without the unit that its name contains",
        _N,
        by_run=True,
    ),
    Misconfiguration(
        "range",
        "a number out of its range",
        "/etc/diskless-proxy/proxy.yaml: redis.shards: Input should be less than or equal to 4096 (it is 5000); "
        "write a number within its range, …",
        _N,
        by_run=True,
    ),
    Misconfiguration(
        "regular_expression",
        "a pattern that is not a regular expression",
        "/etc/diskless-proxy/proxy.yaml: default_diskless_topics: '(' is not a regular expression: "
        "missing ), …; fix it",
        _N,
        by_run=True,
    ),
    Misconfiguration(
        "overlapping_ports",
        "two ranges of ports overlap",
        "/etc/diskless-proxy/proxy.yaml: listeners: bootstrap_port 19102 is also the port of a broker; move either "
        "range",
        _N,
        by_run=True,
    ),
    Misconfiguration(
        "identity_by_certificate",
        "client certificates without SASL: all clients would be one principal",
        "/etc/diskless-proxy/proxy.yaml: settings: listeners.tls.client_auth is required, but with security_protocol "
        "PLAINTEXT no broker sees the clients' certificates: …; use a SASL listener of the brokers …",
        _N,
        by_run=True,
    ),
    Misconfiguration(
        "port_taken",
        "a port that another program has",
        "can't listen on 127.0.0.1:19092 (listeners.bootstrap_port): Address already in use; end the process that "
        "holds the port, or choose another one",
        by_run=True,
    ),
    Misconfiguration(
        "foreign_host",
        "`listeners.host` is an address of another machine",
        "can't listen on 192.0.2.1:… (listeners.bootstrap_port): Cannot assign requested address…; set listeners.host "
        "to an address of this machine, or to 0.0.0.0 for all",
        by_run=True,
    ),
    Misconfiguration(
        "advertised_everywhere",
        "`listeners.host` is 0.0.0.0 and `advertised_host` is empty",
        "listeners.advertised_host: clients would get 0.0.0.0, which is not an address to connect to; set "
        "it to a host name or address of this machine that clients reach",
    ),
    Misconfiguration(
        "advertised_unknown",
        "`advertised_host` can't be resolved",
        "listeners.advertised_host: kafka.invalid can't be resolved (…); fix the setting, or the name service",
    ),
    Misconfiguration(
        "advertised_elsewhere",
        "`advertised_host` leads to another machine",
        "listeners.advertised_host: 127.0.0.2:… does not lead to this machine, tried from this machine: "
        "Connection refused; set it to an address of this machine; ignore this if a load balancer leads here",
        is_warning=True,
    ),
    Misconfiguration(
        "rack_unknown",
        "`rack` is not a rack of the brokers",
        "rack: rack-A is not a rack of a live broker, so its clients use brokers of other racks: the brokers' "
        "racks are "
        "rack-a, rack-b, rack-c; set it to one of these racks; ignore this if the rack really has no broker",
        is_warning=True,
    ),
    Misconfiguration(
        "broker_left_out",
        "a broker has an ID outside of `broker_node_ids`",
        "listeners.broker_node_ids: is '1-2', without broker 3: its port is bound while the proxy runs; open "
        "broker_port_start + 3 to clients (firewall, Service), and add 3 to broker_node_ids",
        is_warning=True,
    ),
    Misconfiguration(
        "broker_port_taken",
        "the port of a broker outside of `broker_node_ids` is taken",
        "can't listen on 127.0.0.1:… (listeners.broker_port_start + 3): Address already in use, so clients do not "
        "get the address of broker 3; end the process that holds the port, or choose another one",
    ),
    Misconfiguration(
        "broker_address",
        "a wrong broker address",
        "brokers.bootstrap: 127.0.0.1:9092: Connection refused; start the brokers, or fix brokers.bootstrap",
    ),
    Misconfiguration(
        "no_kafka",
        "`brokers.bootstrap` names the port of another service",
        "brokers.bootstrap: 127.0.0.1:9092: …; check that this is a Kafka port of brokers.security_protocol PLAINTEXT",
    ),
    Misconfiguration(
        "controller",
        "`brokers.bootstrap` names a controller's port",
        "brokers.bootstrap: 127.0.0.1:9093: the broker closed the connection; check that this is a port of a "
        "broker, not of a controller",
    ),
    Misconfiguration(
        "same_name",
        "two proxies with one `proxy_id`",
        "proxy_id: … is the name of a live proxy at 127.0.0.1:19092 (…); give each proxy a name of its own",
    ),
    Misconfiguration(
        "foreign_store",
        "Redis of another deployment",
        "redis.url leads to a store without data about the objects under storage.url (identity …); fix "
        "redis.url, or restore the store's data. …",
        _STORE,
        by_run=True,
    ),
    Misconfiguration(
        "redis_port",
        "Redis is not there",
        "redis.url 127.0.0.1:6379: the coordinator's store failed while …; check that the store runs and that "
        "redis.url is right",
    ),
    Misconfiguration(
        "redis_database",
        "a database that Redis does not have",
        "redis.url 127.0.0.1:6379: the coordinator's store failed while …: it answered 'DB index is out of "
        "range'; check the database number in redis.url",
    ),
    Misconfiguration(
        "redis_password",
        "a wrong password of Redis",
        "redis.url 127.0.0.1:6379: the coordinator's store failed while asking for its time: it rejects the "
        "proxy's credentials (…); check user and password in redis.url",
        _STORE,
    ),
    Misconfiguration(
        "redis_rights",
        "a user of Redis that may not run scripts, or has no rights on the keys",
        "redis.url 127.0.0.1:6379: the coordinator's store failed while …: it rejects a command (…); see "
        "docs/operations/redis.md, for the rights of redis.url's user",
        _STORE,
    ),
    Misconfiguration(
        "redis_commands",
        "a user of Redis that may not run every command, or a server that has renamed one",
        "redis.url 127.0.0.1:6379: the store rejects HSCAN (…), so a script could stop halfway; allow the user "
        "of redis.url to run all commands in docs/operations/redis.md, on keys and channels that begin "
        "with `diskless:`, and rename no command",
        _STORE,
        by_run=True,
    ),
    Misconfiguration(
        "redis_memory_only",
        "Redis without an append-only file, and no journal (`journal.mode: off`)",
        "redis.url 127.0.0.1:6379: appendonly is no, so a restart of the store loses acknowledged records; set it to "
        "yes …",
        _STORE,
        by_run=True,
    ),
    Misconfiguration(
        "redis_eviction",
        "Redis that evicts keys",
        "redis.url 127.0.0.1:6379: maxmemory-policy is allkeys-lru, so the store may drop the index of acknowledged "
        "records; set it to noeviction",
        _STORE,
        by_run=True,
    ),
    Misconfiguration(
        "redis_replica",
        "a replica of Redis",
        "redis.url 127.0.0.1:6379: the server is a replica (of …), which takes no commits; set redis.url to the "
        "primary, or promote the replica",
        _STORE,
        by_run=True,
    ),
    Misconfiguration(
        "redis_cluster",
        "a node of a cluster, and no `redis+cluster://`",
        "redis.url 127.0.0.1:6379: the server is a node of a cluster; set redis.url to "
        "redis+cluster://host:port,host:port, with some or all servers of the cluster",
        _STORE,
        by_run=True,
    ),
    Misconfiguration(
        "redis_shards",
        "another number of shards than the fleet's",
        "redis.url 127.0.0.1:6379: the store has data with 16 shards, not 8; set redis.shards to 16, it can't "
        "change while there are data",
        by_run=True,
    ),
    Misconfiguration(
        "directory",
        "a directory that can't be written to",
        "storage.url …: the directory … of storage.url can't be used: Not a directory (…); it must be writable for the "
        "proxy's user, on a file system with hard links",
    ),
    Misconfiguration(
        "storage_scheme",
        "a storage that does not exist",
        "storage.url 'ftp://there' has no known scheme; use file:///dir or s3://bucket/prefix, …",
        by_run=True,
    ),
    Misconfiguration(
        "bucket_missing",
        "a bucket that does not exist",
        "storage.url s3://no-such-bucket/prefix: upload of …: bucket no-such-bucket does not exist at …; create it, or "
        "correct storage.url",
        _BUCKET,
    ),
    Misconfiguration(
        "bucket_key",
        "a wrong secret key of object storage",
        "storage.url s3://…: upload of …: … refuses the key (SignatureDoesNotMatch); correct storage.access_key_id and "
        "storage.secret_access_key, or the AWS profile or role",
        _BUCKET,
    ),
    Misconfiguration(
        "bucket_denied",
        "a key without rights on the bucket",
        "storage.url s3://…: upload of …: access to bucket … is denied; the key needs s3:PutObject, s3:GetObject, "
        "s3:DeleteObject and s3:ListBucket on it",
        _BUCKET,
    ),
    Misconfiguration(
        "bucket_region",
        "a wrong region",
        "storage.url s3://…: upload of …: bucket … is not in region us-east-1 (…); correct storage.region",
        _BUCKET,
    ),
    Misconfiguration(
        "bucket_overwrites",
        "a store that does not know If-None-Match",
        "storage.url s3://…: bucket … overwrites objects despite a conditional write; update the store, or use "
        "a store that supports conditional writes",
        _BUCKET,
    ),
    Misconfiguration(
        "clock",
        "a clock that is wrong",
        "storage.url: this machine's clock is … s ahead of that of storage.url; set the clocks by NTP: …",
        _BUCKET,
    ),
    Misconfiguration(
        "open_files",
        "a low limit of open files",
        "limits.max_connections: 512 open files allow … client connections; raise the limit of open files …",
        is_warning=True,
    ),
    Misconfiguration(
        "tls_to_plain",
        "TLS towards a port of the brokers without it",
        "brokers.bootstrap: 127.0.0.1:9092: …; check brokers.tls, and that this is a port of brokers.security_protocol",
    ),
    Misconfiguration(
        "plain_to_tls",
        "no TLS towards a port of the brokers with it",
        "brokers.bootstrap: 127.0.0.1:9093: …; check that this is a Kafka port of brokers.security_protocol PLAINTEXT",
        _SECURE,
    ),
    Misconfiguration(
        "wrong_ca",
        "another CA than the brokers'",
        "brokers.bootstrap: 127.0.0.1:9093: the other side's certificate is not accepted: …; check brokers.tls, "
        "and that this is a port of brokers.security_protocol",
        _SECURE,
    ),
    Misconfiguration(
        "sasl_password",
        "a wrong SASL password",
        "brokers.bootstrap: 127.0.0.1:9093: brokers.sasl: the broker rejects the proxy's credentials: …; check "
        "username, password or token of mechanism SCRAM-SHA-512",
        _SECURE,
    ),
    Misconfiguration(
        "sasl_mechanism",
        "a SASL mechanism that the brokers don't offer",
        "brokers.bootstrap: 127.0.0.1:9093: brokers.sasl.mechanism: the brokers' listener does not offer …, only …; "
        "choose one of these",
        _SECURE,
    ),
    Misconfiguration(
        "token_file",
        "a token file that is not there",
        "brokers.bootstrap: 127.0.0.1:9093: brokers.sasl: token_file: can't read /etc/diskless-proxy/token: No such "
        "file or directory; name a file that the proxy may read",
        _SECURE,
    ),
    Misconfiguration(
        "token_expired",
        "a token that has expired",
        "brokers.bootstrap: 127.0.0.1:9093: brokers.sasl: the broker rejects the token: invalid_token; renew it",
        _SECURE,
    ),
    Misconfiguration(
        "no_rights",
        "a principal without rights",
        "brokers.sasl: may not describe any topic: right Describe is missing; allow the proxies' principal Describe on "
        "topics: kafka-acls in docs/security.md",
        _SECURE,
    ),
    Misconfiguration(
        "certificate_expired",
        "a certificate that has expired",
        "listeners.tls.certificate_file: /etc/diskless-proxy/tls.pem has expired, at … UTC; renew "
        "/etc/diskless-proxy/tls.pem; the proxy reloads it without a restart",
    ),
    Misconfiguration(
        "certificate_pair",
        "a key that is not that of the certificate",
        "listeners.tls.key_file: the key in /etc/diskless-proxy/two.pem does not belong to the certificate in "
        "/etc/diskless-proxy/one.pem; name a matching pair",
        by_run=True,
    ),
)


def needing(needs: Needs) -> list[Misconfiguration]:
    """Return the misconfigurations with these needs, for a parametrized test."""
    return [one for one in MISCONFIGURATIONS if one.needs is needs]


def table() -> str:
    """Return the table as it is in docs/troubleshooting.md."""
    rows = ["| what is wrong | what is said | by |", "|---|---|---|"]
    for one in MISCONFIGURATIONS:
        by = "`check`, `run`" if one.by_run else "`check --strict`" if one.is_warning else "`check`"
        rows.append(f"| {one.what} | `{one.line.replace('`', '')}` | {by} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
