"""The metrics of the daemon: their names, kinds and help, as Prometheus' conventions want them.

Always: names have base units, counters end with ``_total``; no label has values that clients choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram", "info"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; a counter is named without ``_total`` here, and an info without ``_info``."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


SPACE: Final = ("space",)

BUILD = Metric("dataspace_build", "info", "Version of the daemon, and its parts that are machine code.")
READY = Metric("dataspace_ready", "gauge", "1 while clients should be sent to the daemon.")
LOOP_LAG = Metric(
    "dataspace_loop_lag_seconds", "histogram", "How late the event loop ran a task that was ready."
)
LANE_WAITING = Metric("dataspace_lane_waiting", "gauge", "Pieces of background work that wait for a turn.")
LANE_SLICES = Metric("dataspace_lane_slices", "counter", "Slices of background work.")

CONNECTIONS = Metric("dataspace_connections", "gauge", "Connections that are open.")
STRANGERS = Metric("dataspace_unauthenticated_connections", "gauge", "Connections without a valid hello.")
ACCEPTED = Metric("dataspace_connections_accepted", "counter", "Connections that were accepted.")
TURNED_AWAY = Metric("dataspace_connections_refused", "counter", "Connections without room for them.")
LOGINS = Metric("dataspace_logins_refused", "counter", "Hellos with a token that was not valid.")
GOODBYES = Metric("dataspace_goodbyes", "counter", "Connections that the daemon ended, by code.", ("code",))
REFUSED = Metric("dataspace_refusals", "counter", "Turns, requests and streams refused, by code.", ("code",))
SLOW = Metric("dataspace_slow_events", "counter", "What was beyond a threshold of [slow].", ("kind",))
SPANS_SENT = Metric("dataspace_spans_sent", "counter", "Spans that the collector of traces has taken.")
SPANS_DROPPED = Metric("dataspace_spans_dropped", "counter", "Spans that it has not taken, or too many.")
RECEIVED = Metric("dataspace_received_bytes", "counter", "Bytes received from clients.")
SENT = Metric("dataspace_sent_bytes", "counter", "Bytes sent to clients.")
STREAMS = Metric("dataspace_streams", "gauge", "Streams that are open.")
REPLAYS = Metric("dataspace_replays_reading", "gauge", "Replays that hold a part of the log in memory.")

SESSIONS = Metric("dataspace_sessions", "gauge", "Sessions with a connection.", SPACE)
SUSPENDED = Metric("dataspace_suspended_sessions", "gauge", "Sessions within their grace.", SPACE)
TURNS = Metric("dataspace_turns", "counter", "Turns of clients that were committed.", SPACE)
EPOCH = Metric("dataspace_epoch", "gauge", "The newest epoch.", SPACE)
DURABLE = Metric("dataspace_durable_epoch", "gauge", "The newest epoch on disk.", SPACE)
OLDEST = Metric("dataspace_oldest_epoch", "gauge", "The oldest epoch that the log holds.", SPACE)
EPOCHS = Metric("dataspace_epochs_written", "counter", "Epochs written to disk.", SPACE)
CHANGES = Metric("dataspace_changes", "counter", "Changes of facts, and messages, written to disk.", SPACE)
FACTS = Metric("dataspace_facts", "gauge", "Facts, claimed or derived.", SPACE)
CLAIMS = Metric("dataspace_claims", "gauge", "Claims on facts.", SPACE)
FACTS_BYTES = Metric("dataspace_facts_bytes", "gauge", "About what claims take of memory.", SPACE)
OWNERS = Metric("dataspace_owners", "gauge", "Owners that claim something.", SPACE)
LEASES = Metric("dataspace_leases", "gauge", "Leases that have not ended.", SPACE)
IDENTITIES = Metric("dataspace_identities", "gauge", "Identities with remembered turn numbers.", SPACE)

OBSERVERS = Metric("dataspace_observers", "gauge", "Observers of patterns.", SPACE)
PATTERNS = Metric("dataspace_patterns", "gauge", "Different patterns that are observed.", SPACE)
BACKLOG = Metric(
    "dataspace_observer_backlog_max", "gauge", "Values that wait for the slowest observer.", SPACE
)
LAG_EPOCHS = Metric(
    "dataspace_observer_lag_epochs_max", "gauge", "Epochs the slowest observer is behind.", SPACE
)
LAG_SECONDS = Metric(
    "dataspace_observer_lag_max_seconds",
    "gauge",
    "Age of the oldest epoch that waits for an observer.",
    SPACE,
)
WAITING = Metric("dataspace_waiting_bytes", "gauge", "What waits for all observers.")
WAITING_LIMIT = Metric("dataspace_waiting_limit_bytes", "gauge", "limits.waiting_bytes.")
CONFLATED = Metric("dataspace_conflated_epochs", "counter", "Epochs that became part of a net difference.")
DROPPED = Metric("dataspace_dropped_changes", "counter", "Changes dropped for observers with `drop`.")
FAILED = Metric("dataspace_failed_observers", "counter", "Observations that `fail` has ended.")
BEHIND = Metric(
    "dataspace_observers_behind", "counter", "Times an observer with `wait` fell back on the log."
)

COMMIT = Metric("dataspace_commit_seconds", "histogram", "Time of one group of epochs to be on disk.", SPACE)
WRITTEN = Metric("dataspace_log_written_bytes", "counter", "Bytes of epochs written to the log.", SPACE)
SNAPSHOTS = Metric("dataspace_snapshots", "counter", "Snapshots of the state written to disk.", SPACE)
UNWRITTEN = Metric("dataspace_unwritten_epochs", "gauge", "Epochs that wait for the disk.", SPACE)
UNWRITTEN_BYTES = Metric("dataspace_unwritten_bytes", "gauge", "Bytes that wait for the disk.", SPACE)
DISK_FULL = Metric("dataspace_disk_full", "gauge", "1 while the disk has no room for the log.", SPACE)
DISK = Metric(
    "dataspace_disk_bytes",
    "gauge",
    "Bytes of files: the log, what is staged, durable topics, others.",
    ("space", "part"),
)
TOPIC_COMMIT = Metric(
    "dataspace_topic_commit_seconds",
    "histogram",
    "Time of one group of steps of durable topics to be on disk.",
)

MEMORY = Metric("dataspace_memory_accounted_bytes", "gauge", "Memory that the daemon accounts for.")
MEMORY_LIMIT = Metric("dataspace_memory_limit_bytes", "gauge", "limits.memory: growth beyond is refused.")
TRIMS = Metric("dataspace_memory_trims", "counter", "Times free memory was given back to the system.")

RULES = Metric("dataspace_rules", "gauge", "Rules that are carried out.", SPACE)
RULES_SUSPENDED = Metric("dataspace_rules_suspended", "gauge", "Rules suspended after an error.", SPACE)
RULE_SECONDS = Metric("dataspace_rule_seconds", "counter", "Time that rules took, estimated.", SPACE)
TICKS = Metric("dataspace_rule_ticks", "counter", "Runs of the rules.", SPACE)

TOPICS = Metric("dataspace_topics", "gauge", "Topics.")
TOPICS_OPEN = Metric("dataspace_topics_open", "gauge", "Topics with times that are not complete.")
PRODUCERS = Metric("dataspace_topic_producers", "gauge", "Producers of topics.")
SUBSCRIPTIONS = Metric("dataspace_topic_subscriptions", "gauge", "Subscriptions to topics.")
TOPIC_WAITING = Metric("dataspace_topic_waiting_bytes", "gauge", "What subscribers have yet to take.")
TOPIC_RETAINED = Metric("dataspace_topic_retained_bytes", "gauge", "What topics retain in memory.")
FRONTIER_AGE = Metric(
    "dataspace_topic_frontier_age_max_seconds",
    "gauge",
    "The longest time for which the frontier of an open topic has not moved, as scrapes saw it.",
)

READERS = Metric("dataspace_readers", "gauge", "Named readers, such as Spark's queries.", SPACE)
READER_LAG = Metric(
    "dataspace_reader_lag_epochs_max",
    "gauge",
    "Epochs that the slowest named reader has not acknowledged.",
    SPACE,
)
READER_SILENCE = Metric(
    "dataspace_reader_silence_max_seconds", "gauge", "Time since a named reader was heard last.", SPACE
)

METRICS: Final = tuple([each for each in globals().values() if isinstance(each, Metric)])
"""All of them, in the order above."""
