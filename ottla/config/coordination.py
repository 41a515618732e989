"""Keys about consumer groups, committed offsets and transactions. Keys without effect have a reason."""

from __future__ import annotations

from ottla.config.declare import INT_MAX, boolean, choice, int16, int32, int64, words
from ottla.config.options import Options

AT_ONCE = "an assignment is computed within the heartbeat that needs it"
"""Why keys about the time and the thread of assignments have no effect."""

_TURNS = "the writes of one turn of the event loop are gathered, and one sync covers all that wait"


class Groups(Options):
    """Consumer groups."""

    group_initial_rebalance_delay_ms = int32(
        0, kafka="3000", doc="How long a new group waits for further members before its first rebalance."
    )
    group_min_session_timeout_ms = int32(
        6000,
        doc="Shortest session timeout that a member of the classic protocol may ask for.",
    )
    group_max_session_timeout_ms = int32(
        1800000, doc="Longest session timeout that a member of the classic protocol may ask for."
    )
    group_max_size = int32(INT_MAX, at_least=1, doc="Members of one group.")
    group_coordinator_rebalance_protocols = words(
        ("classic", "consumer", "streams"),
        "classic",
        "consumer",
        "share",
        "streams",
        doc="Group protocols that are served.",
    )
    group_coordinator_threads = int32(
        4, at_least=1, inert="coordinators run on the event loop", doc="Threads of the coordinator."
    )
    group_coordinator_append_linger_ms = int32(
        0, at_least=-1, kafka="-1", inert=_TURNS, doc="How long writes of the coordinator are gathered."
    )
    group_consumer_session_timeout_ms = int32(
        45000, at_least=1, doc="Session timeout of the consumer protocol (KIP-848)."
    )
    group_consumer_min_session_timeout_ms = int32(
        100,
        at_least=1,
        kafka="45000",
        doc="Shortest session timeout of the consumer protocol; the default is short for tests.",
    )
    group_consumer_max_session_timeout_ms = int32(
        60000, at_least=1, doc="Longest session timeout of the consumer protocol."
    )
    group_consumer_heartbeat_interval_ms = int32(
        5000, at_least=1, doc="Heartbeat interval of the consumer protocol (KIP-848)."
    )
    group_consumer_min_heartbeat_interval_ms = int32(
        10,
        at_least=1,
        kafka="5000",
        doc="Shortest heartbeat interval of the consumer protocol; the default is short for tests.",
    )
    group_consumer_max_heartbeat_interval_ms = int32(
        15000, at_least=1, doc="Longest heartbeat interval of the consumer protocol."
    )
    group_consumer_max_size = int32(INT_MAX, at_least=1, doc="Members of one group of the consumer protocol.")
    group_consumer_assignors = words(
        ("uniform", "range"),
        "uniform",
        "range",
        at_least_one=True,
        doc="Assignors of the consumer protocol; the first is the default.",
    )
    group_consumer_assignment_interval_ms = int32(
        1000, inert=AT_ONCE, dynamic=True, doc="Shortest time between two assignments of the consumer protocol."
    )
    group_consumer_min_assignment_interval_ms = int32(0, inert=AT_ONCE, doc="Shortest such time that a group may set.")
    group_consumer_max_assignment_interval_ms = int32(
        15000, inert=AT_ONCE, doc="Longest such time that a group may set."
    )
    group_consumer_assignor_offload_enable = boolean(
        True, inert=AT_ONCE, dynamic=True, doc="Whether a thread computes assignments of the consumer protocol."
    )
    group_consumer_migration_policy = choice(
        "bidirectional",
        "bidirectional",
        "upgrade",
        "downgrade",
        "disabled",
        doc="Whether groups may change between the classic and the consumer protocol.",
    )
    group_consumer_regex_refresh_interval_ms = int32(
        600000,
        at_least=10000,
        doc="How often all topics are matched again against the regular expressions of the consumer protocol, at a "
        "heartbeat. Topics that are created or deleted are matched immediately.",
    )
    ottla_group_evict_on_disconnect_ms = int64(
        -1,
        at_least=-1,
        doc="How long after its connection broke a member is removed from its group; -1 waits for its session timeout,"
        " as Kafka does.",
    )


class Offsets(Options):
    """Committed offsets."""

    offsets_topic_num_partitions = int32(
        1,
        at_least=1,
        kafka="50",
        doc="Partitions of `__consumer_offsets` in a new data directory; a directory that has the topic keeps its"
        " number.",
    )
    offsets_topic_replication_factor = int16(
        1,
        at_least=1,
        kafka="3",
        inert="it is always 1 here",
        doc="Replicas of `__consumer_offsets`. Any number is accepted.",
    )
    offsets_topic_segment_bytes = int32(104857600, at_least=1, doc="Segment size of `__consumer_offsets`.")
    offsets_topic_compression_codec = int32(0, at_most=4, doc="Compression of `__consumer_offsets`, by number.")
    offsets_load_buffer_size = int32(
        5242880,
        at_least=1,
        inert="Ottla chooses the size of these reads",
        doc="Bytes read at a time while offsets are loaded.",
    )
    offsets_commit_timeout_ms = int32(
        5000,
        at_least=1,
        doc="Longest time that a commit may take.",
    )
    offsets_retention_minutes = int32(10080, at_least=1, doc="How long offsets of an empty group are kept.")
    offsets_retention_check_interval_ms = int64(600000, at_least=1, doc="How often the broker checks for old offsets.")
    offset_metadata_max_bytes = int32(4096, doc="Longest text that a commit may carry.")


class Transactions(Options):
    """Transactions."""

    transaction_state_log_num_partitions = int32(
        1,
        at_least=1,
        kafka="50",
        doc="Partitions of `__transaction_state` in a new data directory; a directory that has the topic keeps its"
        " number.",
    )
    transaction_state_log_replication_factor = int16(
        1,
        at_least=1,
        kafka="3",
        inert="it is always 1 here",
        doc="Replicas of `__transaction_state`. Any number is accepted.",
    )
    transaction_state_log_min_isr = int32(
        1, at_least=1, kafka="2", inert="it is always 1 here", doc="Replicas that must be in sync."
    )
    transaction_state_log_segment_bytes = int32(104857600, at_least=1, doc="Segment size of `__transaction_state`.")
    transaction_state_log_load_buffer_size = int32(
        5242880,
        at_least=1,
        inert="Ottla chooses the size of these reads",
        doc="Bytes read at a time while transactions are loaded.",
    )
    transaction_max_timeout_ms = int32(
        900000,
        at_least=1,
        doc="Longest timeout that a producer may ask for. A transaction that is open for longer than its timeout is"
        " aborted.",
    )
    transactional_id_expiration_ms = int32(
        604800000,
        at_least=1,
        doc="How long a transactional id is kept that has no open transaction and is not used.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = int32(
        10000, at_least=1, doc="How often the broker checks for transactions that took too long."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = int32(
        3600000, at_least=1, doc="How often the broker checks for idle transactional ids."
    )
    transaction_partition_verification_enable = boolean(
        True,
        dynamic=True,
        doc="Whether a batch of a transaction is refused where its partition was not added to the transaction"
        " (KIP-890).",
    )
    ottla_transaction_max_partitions = int32(
        10000,
        at_least=1,
        dynamic=True,
        doc="Partitions that one transaction may write to. Adding more is refused.",
    )
    ottla_transactions_max_open = int32(
        100000,
        at_least=1,
        dynamic=True,
        doc="Transactions that may be open at the same time. Beginning more is refused.",
    )
    ottla_transactional_ids_max = int32(
        1000000,
        at_least=1,
        dynamic=True,
        doc="Transactional ids that are kept, some 500 bytes of memory each. A further new one is refused with"
        " TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients treat as final; the log says why.",
    )
