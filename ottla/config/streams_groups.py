"""Keys about streams groups (KIP-1071). What has no effect says so."""

from __future__ import annotations

from ottla.config.coordination import AT_ONCE
from ottla.config.declare import INT_MAX, boolean, int32, int64, parsed, words
from ottla.config.options import ConfigType, Options

_FOR_TESTS = "the short one is for tests"
_WARM_UP = "Kafka 4.4 assigns no warm-up tasks either"


def tags(text: str) -> tuple[str, ...]:
    """A comma-separated list of different tags of clients. Raises ValueError."""
    items = tuple(item.strip() for item in text.split(",")) if text.strip() else ()
    if not all(items):
        raise ValueError("must not have an empty tag")
    if len(set(items)) < len(items):
        raise ValueError("must not contain duplicate tag keys")
    return items


class StreamsGroups(Options):
    """Streams groups: the members of Kafka Streams applications, and how tasks are assigned to them."""

    group_streams_session_timeout_ms = int32(45000, at_least=1, doc="Session timeout of a streams group's members.")
    group_streams_min_session_timeout_ms = int32(
        100, at_least=1, kafka="45000", doc=f"Shortest session timeout that a streams group may set; {_FOR_TESTS}."
    )
    group_streams_max_session_timeout_ms = int32(
        60000, at_least=1, doc="Longest session timeout that a streams group may set."
    )
    group_streams_heartbeat_interval_ms = int32(
        5000, at_least=1, doc="Heartbeat interval of a streams group's members."
    )
    group_streams_min_heartbeat_interval_ms = int32(
        10, at_least=1, kafka="5000", doc=f"Shortest heartbeat interval that a streams group may set; {_FOR_TESTS}."
    )
    group_streams_max_heartbeat_interval_ms = int32(
        15000, at_least=1, doc="Longest heartbeat interval that a streams group may set."
    )
    group_streams_max_size = int32(INT_MAX, at_least=1, doc="Members of one streams group.")
    group_streams_num_standby_replicas = int32(0, doc="Standby replicas of each task of a streams group.")
    group_streams_max_standby_replicas = int32(2, doc="Most standby replicas that a streams group may set.")
    group_streams_initial_rebalance_delay_ms = int32(
        0,
        kafka="3000",
        doc="How long a streams group without members waits for further ones before it assigns tasks.",
    )
    group_streams_assignment_interval_ms = int32(
        1000, dynamic=True, doc="Shortest time between two assignments of a streams group."
    )
    group_streams_min_assignment_interval_ms = int32(
        0, doc="Shortest time between assignments that a streams group may set."
    )
    group_streams_max_assignment_interval_ms = int32(
        15000, doc="Longest time between assignments that a streams group may set."
    )
    group_streams_assignors = words(
        ("sticky",), "sticky", at_least_one=True, inert="there is only one", doc="Task assignors of streams groups."
    )
    group_streams_assignor_offload_enable = boolean(
        True, inert=AT_ONCE, dynamic=True, doc="Whether a thread computes assignments of streams groups."
    )
    group_streams_task_offset_interval_ms = int32(
        60000, at_least=1, doc="How often members of a streams group report the changelog offsets of their tasks."
    )
    group_streams_min_task_offset_interval_ms = int32(
        15000, at_least=1, doc="Shortest time between such reports that a streams group may set."
    )
    group_streams_num_warmup_replicas = int32(2, inert=_WARM_UP, doc="Warm-up replicas of a streams group's tasks.")
    group_streams_max_warmup_replicas = int32(20, inert=_WARM_UP, doc="Most such replicas that a group may set.")
    group_streams_rack_aware_assignment_tags = parsed(
        "",
        tags,
        kind=ConfigType.LIST,
        allowed="a comma-separated list without duplicates",
        doc="Tags that clients of a streams group should have; a heartbeat's answer names those that a client lacks."
        " The assignor does not use them, as in Kafka 4.4.",
    )
    group_streams_acceptable_recovery_lag = int64(
        10000,
        doc="How many records a streams group's member may have to restore and count as caught up; sent to members.",
    )
