"""The two tiers of tests: `quick` is the gate of every change, `full` is the proof and runs everything.

A test is quick unless the table below names it. So a new test is part of the gate from its first day, and to take it
out needs a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


class Tier(StrEnum):
    """Tests that a run asks for."""

    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class FullOnly:
    """Tests that only the full tier runs."""

    path: str
    """A file or a folder, relative to `tests/`."""
    reason: str
    """Why the gate can do without: the cost, and the quick tests that cover the same behaviour."""
    names: str = ""
    """A regular expression for names in the file, searched for in `test_name[parameters]`; empty for all of them."""

    def covers(self, path: str, name: str) -> bool:
        """Return whether the entry names this test, by its path relative to `tests/` and its name."""
        return self.holds(path) and re.search(self.names, name) is not None

    def holds(self, path: str) -> bool:
        """Return whether the file is the entry's, or in its folder."""
        return path == self.path or path.startswith(f"{self.path}/")


FULL_ONLY: tuple[FullOnly, ...] = (
    # Long loads: each runs for minutes, and has a command that runs it for longer.
    FullOnly("faults/test_moves_under_load.py", "long load; routed_fetch/ and faults/test_leader_frozen.py are quick"),
    FullOnly("faults/test_retention_under_load.py", "long load; test_space_given_back.py is quick"),
    FullOnly("faults/test_pipeline_under_load.py", "long load; pipeline/merge and pipeline/compact are quick"),
    FullOnly("soak/test_short.py", "long load of everything at once"),
    FullOnly("faults/test_matrix.py", "stacks of its own; faults/test_store_wiped.py is quick", r"^test_cells_are"),
    FullOnly("faults/test_journal_begins.py", "stack of its own; coordinator/test_journal_change.py is quick"),
    FullOnly("upgrade", "long load on a stack of two releases; guard/test_newer_releases.py is quick"),
    # Kill runs: the same work again and again, killed at every step. One kill of each kind is quick.
    FullOnly("faults/test_killed_at_every_step.py", "kill run; handlers' unit tests cover each step"),
    FullOnly("faults/test_housekeeper_killed_at_every_step.py", "kill run; housekeeping's unit tests cover each step"),
    FullOnly("faults/test_rolling_restart.py", "kill run on six proxies; faults/test_proxy_ends.py is quick"),
    FullOnly("faults/test_brokers_restarted.py", "restarts of all brokers; faults/test_leader_frozen.py is quick"),
    FullOnly("faults/under_replicated", "stack of its own, kill runs; unit/replication covers each step"),
    FullOnly("pipeline/test_ends.py", "kill runs of Spark drivers; unit/pipeline covers the steps"),
    *(
        FullOnly(
            f"integration/coordinator/{name}.py",
            "the contract again, on a cluster; coordinator/test_cluster.py is quick",
            r"\[(.*-)?cluster(_view)?[-\]]",
        )
        for name in (
            "test_contract",
            "test_contract_producers",
            "test_replace",
            "test_segment_use",
            "test_transactions",
            "test_trim_and_garbage",
        )
    ),
    FullOnly(
        "integration/coordinator/test_against_model.py",
        "the same histories, on a cluster; coordinator/test_cluster.py is quick",
        "^test_random_histories_on_a_cluster",
    ),
    FullOnly(
        "integration/coordinator/test_view_against_model.py",
        "the same histories, on a cluster; coordinator/test_cluster.py is quick",
        "_on_a_cluster$",
    ),
    FullOnly("integration/guard/test_copied_store.py", "clusters of its own; integration/guard/test_move.py is quick"),
    FullOnly(
        "integration/coordinator/test_cluster_faults.py",
        "clusters of its own whose primaries die; coordinator/test_cluster.py moves a slot under commits in the gate",
    ),
    FullOnly(
        "integration/coordinator/test_cluster_cut.py",
        "a cluster with replicas of its own; guard/test_failover.py writes to two primaries in the gate",
    ),
    # Faults that have a quick canary in the same file, or a cheaper quick test.
    FullOnly(
        "integration/journal/test_journal_faults.py",
        "a minute of moved and killed leaders; unit/journal covers each answer of a broker",
        r"^test_no_acknowledged_record_is_lost_while_leaders_move_and_die",
    ),
    FullOnly(
        "faults/test_unacknowledged.py",
        "36 MB while a broker hangs, which a loaded machine is too slow for; one record, and classic ones, are quick",
        r"\[many-diskless",
    ),
    FullOnly("faults/test_redis_loses_writes.py", "stack of its own; guard/test_failover.py is quick"),
    FullOnly(
        "integration/test_idle_brokers.py",
        "two stacks of its own; unit/connection/test_stand_in.py is quick",
    ),
    FullOnly("faults/test_store_cluster.py", "a cluster and a stack; coordinator/test_cluster.py is quick"),
    FullOnly("faults/test_move_under_load.py", "a cluster and a stack; integration/guard/test_move.py is quick"),
    FullOnly("faults/test_store_killed.py", "stacks of its own; integration/demo/test_demo_stores.py is quick"),
    FullOnly(
        "integration/demo/test_demo_stores.py",
        "a failover of Sentinels; the cluster's test in the same file is quick",
        "^test_sentinels",
    ),
    FullOnly("faults/test_redis_away.py", "the store that hangs is quick", r"^test_the_store_is_killed"),
    FullOnly(
        "faults/test_storage_away.py", "stack of its own; the directory that is away is quick", r"^test_an_s3_store"
    ),
    FullOnly(
        "faults/test_proxy_ends.py",
        "demo/test_load.py kills a proxy under load in the gate; a terminated one that answers is quick",
        r"^test_nothing_is_lost_or_repeated",
    ),
    FullOnly("faults/test_leader_frozen.py", "a broker starts again; brokers that hang are quick", r"_has_died_"),
    FullOnly(
        "integration/kips/test_kip_1163.py",
        "segments of seconds of load; unit/diskless/wal covers the interval and the size",
        r"_within_a_threshold",
    ),
    # Other versions of clients and brokers. One version of each library runs every scenario in the gate.
    FullOnly("conformance/jvm/test_oldest_brokers.py", "brokers of another version"),
    FullOnly("conformance/jvm/test_old_clients.py", "clients of other versions"),
    FullOnly("conformance/test_conformance.py", "clients of other versions", r"-as-0\.11\.0\]"),
    FullOnly(
        "conformance/test_conformance.py",
        "kcat is librdkafka, as confluent-kafka is, which runs every scenario; one of kcat's is quick",
        r"\[(?!group_goes_on-)\w+-kcat\]",
    ),
    FullOnly(
        "integration/clients/test_local_reads.py",
        "clients of other versions",
        r"\[(java 2|java 0|kafka-python 1|fetch v10|.* with client\.rack)",
    ),
    FullOnly("integration/clients/test_local_reads_selector.py", "stack of its own; test_local_reads.py is quick"),
    FullOnly(
        "integration/routed_fetch/test_field_by_field.py",
        "every version of Fetch; the first and last of each encoding (4, 11, 12, 13, 18) are quick",
        r"^test_(reads_of|replicas_are|errors_of).*\[(5|6|7|8|9|10|14|15|16|17)\]",
    ),
    FullOnly(
        "integration/offsets/test_list_offsets.py",
        "every version of ListOffsets; the oldest, the first with each kind of answer and the newest are quick",
        r"^test_every_version.*\[(2|3|5|6|8|10)\]",
    ),
    FullOnly(
        "conformance/test_conformance.py",
        "kafka-python's coordinator takes its time; librdkafka's group and the one of KIP-848 are quick",
        r"\[group_shares_partitions-kafka-python\]",
    ),
    # Large programs of others.
    FullOnly(
        "integration/storage/test_storage_contract.py",
        "installs Azurite from npm and fake-gcs-server from PyPI; file and s3 are quick",
        r"\[(az|gs)",
    ),
    FullOnly("conformance/jvm/test_console.py", "a JVM for each step; integration/clients/test_java_tools.py is quick"),
    FullOnly("conformance/jvm/test_mirror_maker.py", "MirrorMaker 2: two JVMs for a minute"),
    FullOnly("conformance/jvm/test_streams.py", "Kafka Streams: a JVM for each case"),
    FullOnly("pipeline/test_cluster.py", "a Spark cluster; the same jobs run in the session of the quick tests"),
    FullOnly("docs/test_executed.py", "pages run as they stand: installs and starts everything again"),
    FullOnly("integration/demo/test_demo_wheel.py", "installs the wheel; integration/demo runs the demo of the clone"),
    FullOnly(
        "integration/security/test_verify.py",
        "a minute; integration/verify and integration/security are quick without it",
    ),
    FullOnly("docs/test_recipes.py", "Kafka Connect and Flink, and clients that the gate runs elsewhere"),
    FullOnly(
        "unit/connection/test_large_requests.py",
        "minutes of work; the same requests with 8,000 elements are quick",
        r"^test_no_step_of_the_largest",
    ),
    FullOnly("integration/test_pipelining.py", "compares times, which says little on a loaded machine"),
    FullOnly(
        "integration/clients/test_java_tools.py",
        "a JVM for each command; the same on a diskless topic, and conformance/jvm/test_tools_agree.py, are quick",
        r"\[classic\]|^test_console|^test_topics_groups_and_offsets",
    ),
    FullOnly(
        "faults/test_transactions_under_faults.py",
        "half a minute for each fault; the client that is killed is quick, and test_marker_tail.py kills the tail",
        r"^test_(java|aiokafka|the_oldest)|\[(?!kill_client)",
    ),
    FullOnly(
        "faults/test_unclean_election.py", "brokers are killed for half a minute; markers/test_following.py is quick"
    ),
    FullOnly("faults/test_last_epoch.py", "a broker restarts; integration/coordinator/test_transactions.py is quick"),
    FullOnly(
        "pipeline/test_open_transactions.py",
        "Spark on a stack; unit/pipeline/compact and integration/test_transactional_reads.py are quick",
    ),
    FullOnly("integration/test_transactions.py", "a topic with 900 replicas; one partition is quick", "hundreds"),
    FullOnly("integration/demo/test_load.py", "a whole demo; test_demo_serve.py starts one", r"^test_the_demo_ends"),
    FullOnly(
        "integration/demo/test_demo_stack.py",
        "the tests' own stack: what it can't do fails other tests, too",
        r"^test_(a_named_directory|s3_storage|a_killed_broker|kafkas_own_tools)",
    ),
    FullOnly("deploy/test_alerts.py", "promtool goes through days of data", r"^test_each_alert_fires"),
    FullOnly(
        "integration/check/test_misconfigurations.py",
        "a check and the start of a proxy for each case; a few cases of each kind are quick",
        r"^test_next_to_a_running_fleet\[(?!port_taken|rack_unknown|broker_address|redis_port|tls_to_plain)",
    ),
    # A second proof of something that is quick.
    FullOnly(
        "integration/offsets/test_cold_reads.py", "unit/diskless tests the same cache; a restart of a proxy, twice"
    ),
    FullOnly(
        "integration/edge/test_invented_topics.py",
        "stack of its own that counts requests; unit/topics and unit/accounting bound the same caches",
    ),
    FullOnly(
        "integration/test_topic_configs.py",
        "stack of its own; unit/topics/test_topic_defaults.py covers the brokers' defaults",
        r"^test_a_default_of_the_brokers_is_returned_in_its_unit",
    ),
    FullOnly(
        "integration/demo/test_load.py",
        "the load that survives a killed proxy is read in every rack, too",
        r"^test_every_rack_reads",
    ),
    FullOnly(
        "integration/verify/test_verify.py",
        "whole runs of the checker; one through the proxies, and unit/judge, are quick",
        r"^test_(proxies_lose_nothing_if|the_command_on|a_load_that)",
    ),
    FullOnly(
        "integration/coordinator/test_loss_histories.py",
        "proves the histories, not the product",
        r"^test_a_planted_error_is_found",
    ),
    FullOnly("differential/test_differential.py", "proves the comparison, not the product", r"^test_a_planted_bug"),
    FullOnly("pipeline/audit/test_under_changes.py", "long load; audit/test_defects.py is quick"),
    # Spark: one job of each kind runs in the gate; unit/pipeline covers what a job decides.
    FullOnly(
        "pipeline/compact/test_against_log_cleaner.py", "a log cleaner's minute; compact/test_compact_job.py is quick"
    ),
    FullOnly("pipeline/merge/test_merge_at_once.py", "kill run; merge/test_merge.py is quick", r"^test_a_driver_that"),
    FullOnly("pipeline/source/test_against_consumer.py", "source/test_batch.py compares the same columns"),
    FullOnly(
        "pipeline/compact/test_compact_job.py",
        "kill runs and second jobs; unit/pipeline/compact covers each step and each policy",
        r"^test_(a_driver_that_dies|a_merge_and_produces|keys_that_are_lost|a_topic_(whose|without))",
    ),
    FullOnly("pipeline/traffic/test_stack.py", "a minute of traffic; traffic/test_job.py is quick"),
    FullOnly(
        "pipeline/source/test_stream.py",
        "minutes of streams; test_stream_beginnings.py is quick, and unit/pipeline/source covers the offsets",
    ),
    FullOnly(
        "pipeline/source/test_batch.py", "starts Spark again and again; one of each job is quick", r"^test_errors_are"
    ),
    FullOnly(
        "pipeline/compact/test_compact_job.py",
        "one unreadable partition is quick",
        r"^test_the_command|\[(short_object|missing_object)\]",
    ),
    FullOnly("pipeline/merge/test_merge_on_stack.py", "stack of its own; merge/test_merge.py is quick"),
    FullOnly(
        "pipeline/test_spark_kafka.py",
        "Spark on top of Kafka's Java client, in a session next to a stack; conformance/jvm/test_tools_agree.py and "
        "clients/test_java_tools.py run that client in the gate, and pipeline/source/test_batch.py runs Spark",
    ),
    FullOnly(
        "pipeline/test_session_and_tasks.py",
        "a second session; unit/pipeline covers failures",
        r"^test_a_task_that_fails",
    ),
    FullOnly("unit/pipeline/test_schedule.py", "one signal is quick", r"\[2\]"),
    FullOnly("faults/test_cut_off_from_redis.py", "stack of its own; unit/topics and unit/routing are quick"),
    FullOnly(
        "conformance/jvm/test_diskless_tools.py", "stack of its own; unit/handlers covers the configs that are shown"
    ),
    FullOnly(
        "conformance/test_conformance.py",
        "librdkafka runs every scenario in the gate, and each other library some of them",
        r"\[(?!\w+-(confluent-kafka|kcat)\]"
        r"|(group_goes_on|offsets_of_times|acknowledged_records)-aiokafka\]"
        r"|(group_shares_partitions|a_topics_life|every_compression)-kafka-python\]"
        r"|(kip_848_group_goes_on|transactions|large_records)-franz-go\])",
    ),
    FullOnly("integration/demo/test_load.py", "unit/judge is quick", r"^test_a_record_that_is_stored_twice"),
    FullOnly(
        "integration/test_bad_start.py",
        "starts of whole proxies; one case of each kind is quick, and unit/config covers the settings",
        r"^test_a_taken_port.*\[(bootstrap|admin)|^test_a_store_that_may_lose.*\[maxmem|^test_a_storage_that_does"
        r"|^test_a_missing_file|^test_sigterm",
    ),
    FullOnly(
        "admin_page/test_page.py",
        "a browser; one size is quick",
        r"\[size[12]|^test_(a_round_in_progress|bytes_that_cross|long_sections|a_full_buffer|tables_sort)",
    ),
    # Stacks of their own.
    FullOnly(
        "integration/clients/test_one_port_by_name.py",
        "stack of its own with four brokers and many JVMs; connection/test_tls_names.py is quick",
    ),
    FullOnly(
        "integration/test_workers.py",
        "kill runs and failing starts of whole proxies; the sum of two workers' metrics is quick",
        r"^test_(?!one_page_of_metrics|a_reload_reaches)",
    ),
    FullOnly(
        "admin_page/test_real_proxy.py", "stack of its own; admin_page/test_page.py and test_admin_server.py are quick"
    ),
    FullOnly(
        "faults/test_broker_of_a_listener_dies.py",
        "stack of its own; the killed broker is quick, and unit/connection/test_stand_in.py covers the others",
        r"^(?!.*\[is killed\])",
    ),
    FullOnly("integration/test_joining_broker.py", "one worker is quick", r"\[2\]"),
    FullOnly(
        "integration/security/test_local_reads.py", "security/test_user_quotas.py is quick", r"^test_a_limited_user"
    ),
    # The same again, for another kind of topic, client, mechanism, version or cause.
    FullOnly(
        "integration/kips/test_kip_1163_suites.py",
        "the KIP's plan; conformance/test_conformance.py runs such clients on both kinds",
        r"classic\]|\[classic-|^test_(multiple_consumers_random_group_partitions|consume_bench\[assign)",
    ),
    FullOnly(
        "integration/kips/test_rack_choices.py",
        "restarts of a proxy; unit/routing covers each choice",
        r"_other_choices",
    ),
    FullOnly(
        "integration/kips/test_kip_1163.py",
        "restarts of all; faults/ has one of each in the gate",
        r"is_stopped_and_restarted",
    ),
    FullOnly(
        "integration/security/test_clients.py",
        "one mechanism for each client is quick",
        r"^test_(aiokafka\[OAUTH|confluent_kafka\[SCRAM)",
    ),
    FullOnly("integration/security/test_reauthentication.py", "one version and kind is quick", r"\[0-|-classic\]"),
    FullOnly("integration/security/test_user_quotas.py", "one mechanism is quick", r"\[(?!PLAIN)"),
    FullOnly(
        "integration/test_bad_security.py",
        "starts of whole proxies; two causes are quick, and unit/config covers the settings",
        r"overrides[234]-",
    ),
    FullOnly(
        "integration/check/test_misconfigurations.py",
        "starts of servers; a store with eviction and one without commands are quick",
        r"^test_an_unfit_store\[(?!redis_eviction|redis_commands)|^test_a_node_of_a_cluster",
    ),
    FullOnly(
        "integration/guard/test_failover.py", "one of two cases is quick", r"_however_much_was_written_since\[True"
    ),
    FullOnly(
        "integration/test_past_the_proxies.py",
        "waits for a topic's absence to be confirmed; the deletion while proxies run is quick",
        r"^test_a_topic_deleted_while_no_proxy_ran",
    ),
    FullOnly("integration/test_merged_objects.py", "pipeline/merge/test_merge.py and unit/diskless are quick"),
    FullOnly("integration/test_tools.py", "waits for garbage; unit/housekeeping is quick", r"^test_objects_are_shared"),
    FullOnly(
        "integration/test_space_given_back.py",
        "kill run, and a second age; unit/housekeeping covers both",
        r"even_if_the_housekeeper_dies|\[7200\]",
    ),
    FullOnly(
        "integration/edge/test_limits.py",
        "half a minute of memory; unit/connection/test_unread.py is quick",
        r"^test_clients_that_read_nothing",
    ),
    FullOnly("faults/test_unacknowledged.py", "diskless topics are quick", r"classic\]"),
    FullOnly("conformance/jvm/test_positions_of_groups.py", "one kind of group is quick", r"\[classic\]"),
    FullOnly(
        "integration/clients/test_local_reads_transactions.py",
        "a second client and other versions",
        r"\[(kcat|confluent_kafka|7|10|12)\]",
    ),
    FullOnly("integration/kips/test_kafka_19257.py", "a broker starts again; faults/ is quick", r"brokers_stop"),
    FullOnly(
        "integration/demo/test_demo_stack.py",
        "kills a starter; demo/test_demo_serve.py is quick",
        r"^test_no_server_outlives",
    ),
)
"""Tests that the quick tier leaves out."""
NAMES_NO_TEST = pytest.StashKey[list[FullOnly]]()
"""Entries that name none of the tests that this run collected from their files."""


def leaves_out(path: Path) -> bool:
    """Return whether the quick tier runs no test of the file or folder, so that nothing in it is imported."""
    if not path.is_relative_to(TESTS):
        return False
    place = place_of(path)
    return any(entry.holds(place) for entry in FULL_ONLY if not entry.names)


def look_up(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what the tier of the run leaves out, and note which entries of the table name no test."""
    by_path: dict[Path, list[pytest.Item]] = {}
    for item in items:
        by_path.setdefault(item.path, []).append(item)
    files = {place_of(path): in_file for path, in_file in by_path.items() if path.is_relative_to(TESTS)}
    named_by_hand = any("::" in argument for argument in config.args)
    names = {path: [item.name for item in in_file] for path, in_file in files.items()}
    config.stash[NAMES_NO_TEST] = [] if named_by_hand else unused(FULL_ONLY, names)
    if config.getoption("tier") == Tier.QUICK:
        out = {
            item
            for path, in_file in files.items()
            for entry in FULL_ONLY
            if entry.holds(path)
            for item in in_file
            if entry.covers(path, item.name)
        }
        config.hook.pytest_deselected(items=[item for item in items if item in out])
        items[:] = [item for item in items if item not in out]


def place_of(path: Path) -> str:
    """Return the path of a file or a folder in `tests/` as the table writes it."""
    return path.relative_to(TESTS).as_posix()


def unused(table: Iterable[FullOnly], tests: Mapping[str, Sequence[str]]) -> list[FullOnly]:
    """Return the entries that name none of the tests of their files, among tests given as names by path.

    An entry is not returned if none of its files has a test among them.
    """
    return [
        entry
        for entry in table
        if (names := [name for path, in_file in tests.items() if entry.holds(path) for name in in_file])
        and not any(re.search(entry.names, name) for name in names)
    ]
