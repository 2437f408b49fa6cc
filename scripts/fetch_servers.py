"""Fetch into `.servers/` what the wheels do not bring: Kafka's jars, and programs for tests. Run by `setup.py`.

    fetch_servers.py [--demo]               only what `diskless-proxy demo` needs
    fetch_servers.py --lock                 renew the jars.lock files after a change of a pom.xml

Maven fetches the jars if there is `mvn` (so that mirrors in its settings are used); otherwise jgo does, which needs no
Java. Each jar is checked against the SHA-256 in its `jars.lock`; see `proxy/demo/jars.py`. For programs in Go see
`go_programs.py`, for kcat and Prometheus `kcat.py` and `prometheus.py`, for a browser `chromium.py`. At the end
`class_data.py` prepares the brokers' classes for fast starts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import chromium
import class_data
import crds
import go_programs
import jars
import kcat
import prometheus
from jars import SERVERS, FetchError, say

from proxy.demo import servers
from proxy.demo.errors import StackError


def main() -> None:
    """Fetch what is missing, in parallel."""
    SERVERS.mkdir(parents=True, exist_ok=True)
    if "--lock" in sys.argv:
        for jar_set in (jars.BROKERS, *jars.for_tests()):
            jar_set.write_lock(say)
        return
    jar_sets = [jars.BROKERS]
    jobs: list[Callable[[], None]] = [check_wheels, lambda: jars.fetch_all(jar_sets)]
    if "--demo" not in sys.argv:
        jar_sets += jars.for_tests()
        jobs += [go_programs.build_programs, crds.fetch_crds, kcat.fetch_kcat, chromium.fetch_chromium]
        jobs += [prometheus.fetch_prometheus]
    with ThreadPoolExecutor(len(jobs)) as pool:
        results = [pool.submit(job) for job in jobs]
    failures = [str(error) for error in (result.exception() for result in results) if error]
    if failures:
        sys.exit("\n".join(f"setup: {failure}" for failure in failures))
    class_data.share_classes()


def check_wheels() -> None:
    """Check that Java, the Redis-compatible server and the S3 server are where the stack looks for them."""
    stamp = SERVERS / ".wheels"
    found = "\n".join((servers.java(), servers.valkey(), servers.seaweedfs()))
    if not stamp.exists() or stamp.read_text() != found:
        say("using " + found.replace("\n", ", "))
        stamp.write_text(found)


if __name__ == "__main__":
    try:
        main()
    except (FetchError, StackError) as error:
        sys.exit(f"setup: {error}")
