"""Keys about share groups (KIP-932). What has no effect says so."""

from __future__ import annotations

import re

from ottla.config.coordination import AT_ONCE
from ottla.config.declare import boolean, int16, int32, string, words
from ottla.config.options import Options

BY_DURATION = "by_duration:"
_DURATION = (
    r"P(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?"
)
_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}

_FOR_TESTS = "the short one is for tests"
_ONE_THREAD = "coordinators run on the event loop"


class ShareGroups(Options):
    """Share groups: their members, and what is delivered to them."""

    group_share_session_timeout_ms = int32(45000, at_least=1, doc="Session timeout of a share group's members.")
    group_share_min_session_timeout_ms = int32(
        100, at_least=1, kafka="45000", doc=f"Shortest session timeout that a share group may set; {_FOR_TESTS}."
    )
    group_share_max_session_timeout_ms = int32(
        60000, at_least=1, doc="Longest session timeout that a share group may set."
    )
    group_share_heartbeat_interval_ms = int32(5000, at_least=1, doc="Heartbeat interval of a share group's members.")
    group_share_min_heartbeat_interval_ms = int32(
        10, at_least=1, kafka="5000", doc=f"Shortest heartbeat interval that a share group may set; {_FOR_TESTS}."
    )
    group_share_max_heartbeat_interval_ms = int32(
        15000, at_least=1, doc="Longest heartbeat interval that a share group may set."
    )
    group_share_max_size = int32(200, at_least=1, doc="Members of one share group.")
    group_share_assignors = words(
        ("simple",), "simple", at_least_one=True, inert="there is only one", doc="Assignors of share groups."
    )
    group_share_assignment_interval_ms = int32(
        1000, inert=AT_ONCE, dynamic=True, doc="Shortest time between two assignments of a share group."
    )
    group_share_min_assignment_interval_ms = int32(0, inert=AT_ONCE, doc="Shortest such time that a group may set.")
    group_share_max_assignment_interval_ms = int32(15000, inert=AT_ONCE, doc="Longest such time that a group may set.")
    group_share_assignor_offload_enable = boolean(
        True, inert=AT_ONCE, dynamic=True, doc="Whether a thread computes assignments of share groups."
    )
    group_share_max_share_sessions = int32(2000, at_least=1, doc="Share sessions that the broker keeps.")
    group_share_record_lock_duration_ms = int32(
        30000, at_least=1, doc="How long a member of a share group may have a record before it is delivered again."
    )
    group_share_min_record_lock_duration_ms = int32(
        100, at_least=1, kafka="15000", doc=f"Shortest such time that a share group may set; {_FOR_TESTS}."
    )
    group_share_max_record_lock_duration_ms = int32(
        60000, at_least=1, doc="Longest such time that a share group may set."
    )
    group_share_delivery_count_limit = int32(
        5, at_least=1, doc="How often a share group's record is delivered before it is archived."
    )
    group_share_min_delivery_count_limit = int32(
        1, at_least=1, kafka="2", doc="The least delivery count limit that a share group may set."
    )
    group_share_max_delivery_count_limit = int32(
        10, at_least=1, doc="The highest delivery count limit that a share group may set."
    )
    group_share_partition_max_record_locks = int32(
        2000, at_least=1, doc="Records of a partition that a share group may have in flight."
    )
    group_share_min_partition_max_record_locks = int32(
        1, at_least=1, kafka="100", doc="The least number of records in flight that a share group may set."
    )
    group_share_max_partition_max_record_locks = int32(
        4000, at_least=1, doc="The highest number of records in flight that a share group may set."
    )
    group_share_enable = boolean(
        False, inert="the feature share.version decides", doc="Whether share groups are served (Kafka 4.0)."
    )
    errors_deadletterqueue_auto_create_topics_enable = boolean(
        False,
        dynamic=True,
        doc="Whether a topic for the dead letters of a share group is created when it is needed (KIP-1191).",
    )
    errors_deadletterqueue_topic_name_prefix = string(
        "dlq.",
        dynamic=True,
        doc="The beginning of the name that a topic for dead letters must have; empty: any name (KIP-1191).",
    )
    share_fetch_purgatory_purge_interval_requests = int32(
        1000,
        inert="requests that wait are removed when they are answered",
        doc="How often waiting requests are purged.",
    )


class ShareState(Options):
    """The state of share groups, in `__share_group_state`."""

    share_coordinator_state_topic_num_partitions = int32(
        1,
        at_least=1,
        kafka="50",
        doc="Partitions of `__share_group_state` in a new data directory; a directory that has the topic keeps its"
        " number.",
    )
    share_coordinator_state_topic_replication_factor = int16(
        1,
        at_least=1,
        kafka="3",
        inert="it is always 1 here",
        doc="Replicas of `__share_group_state`. Any number is accepted.",
    )
    share_coordinator_state_topic_min_isr = int16(
        1, at_least=1, kafka="2", inert="it is always 1 here", doc="Replicas that must be in sync."
    )
    share_coordinator_state_topic_segment_bytes = int32(
        104857600, at_least=1, doc="Segment size of `__share_group_state`."
    )
    share_coordinator_state_topic_compression_codec = int32(
        0, at_most=4, doc="Compression of `__share_group_state`, by number."
    )
    share_coordinator_state_topic_prune_interval_ms = int32(
        300000,
        at_least=1,
        doc="How often the records of `__share_group_state` are removed that are not needed any more.",
    )
    share_coordinator_snapshot_update_records_per_snapshot = int32(
        500, doc="Changes of a share partition that are written one by one between two records with all of its state."
    )
    share_coordinator_write_timeout_ms = int32(
        5000, at_least=1, doc="Longest time that an acknowledgement may take to be written."
    )
    share_coordinator_threads = int32(1, at_least=1, inert=_ONE_THREAD, doc="Threads of the share coordinator.")
    share_coordinator_append_linger_ms = int32(
        -1,
        at_least=-1,
        inert="the writes of one turn of the event loop are gathered, and one sync serves all that wait",
        doc="How long writes of the share coordinator are gathered.",
    )
    share_coordinator_load_buffer_size = int32(
        5242880,
        at_least=1,
        inert="states are read in pieces of a size of our own",
        doc="Bytes read at a time while states are loaded.",
    )
    share_coordinator_cold_partition_snapshot_interval_ms = int32(
        300000,
        at_least=1,
        inert="what stands in the way of removing records is written again then",
        doc="How often the state of share partitions that nobody uses is written again.",
    )


def offset_reset(text: str) -> str:
    """A value of `share.auto.offset.reset`: `latest`, `earliest`, or `by_duration:` and an ISO 8601 duration of days,
    hours, minutes and seconds. Raises ValueError.
    """
    if text in ("latest", "earliest"):
        return text
    if not text.startswith(BY_DURATION):
        raise ValueError("must be latest, earliest or by_duration:PnDTnHnMn.nS")
    duration_ms(text)
    return text


def dead_letter_topic(text: str) -> str:
    """A value of `errors.deadletterqueue.topic.name`; internal topics are refused. Raises ValueError."""
    if text.startswith("__"):
        raise ValueError("must not start with __")
    return text


def duration_ms(text: str) -> int:
    """The duration of a value `by_duration:PT1H30M`. Raises ValueError."""
    found = re.fullmatch(_DURATION, text.removeprefix(BY_DURATION))  # not compiled by a start, which has no such value
    parts = {} if found is None else {unit: float(number) for unit, number in found.groupdict().items() if number}
    if not parts:
        raise ValueError("must have a duration after by_duration:, such as PT1H30M or P7D")
    return int(sum(number * _MS[unit] for unit, number in parts.items()))
