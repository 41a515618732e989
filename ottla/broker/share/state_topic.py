"""`__share_group_state`, as the runtime of coordinators gets it: its configuration, and the codec of its records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.coordination.definition import CoordinatorDefinition
from ottla.broker.coordination.records import RecordCodec
from ottla.broker.share.shard import ShareStateShard
from ottla.protocol.records.compression import Compression
from ottla.protocol.stored.share_state import (
    decode_share_state_record,
    encode_share_state_key,
    encode_share_state_value,
)
from ottla.storage.formats.layout import SHARE_GROUP_STATE_TOPIC

if TYPE_CHECKING:
    from ottla.broker.coordination.definition import LoadCounters
    from ottla.broker.coordination.shard import ShardContext
    from ottla.config.broker import BrokerConfig


def share_state_definition(
    config: BrokerConfig, make_shard: Callable[[ShardContext], ShareStateShard], counters: LoadCounters
) -> CoordinatorDefinition[ShareStateShard]:
    """The coordinator of share partitions, by the broker's configuration."""
    return CoordinatorDefinition(
        topic=SHARE_GROUP_STATE_TOPIC,
        partitions=config.share_coordinator_state_topic_num_partitions,
        configs=(
            ("cleanup.policy", "delete"),
            ("compression.type", "producer"),
            ("retention.ms", "-1"),
            ("segment.bytes", str(config.share_coordinator_state_topic_segment_bytes)),
        ),
        noun="share partition",
        codec=RecordCodec(
            encode_key=encode_share_state_key,
            encode_value=encode_share_state_value,
            decode=decode_share_state_record,
            compression=Compression(config.share_coordinator_state_topic_compression_codec),
        ),
        make_shard=make_shard,
        write_timeout_ms=config.share_coordinator_write_timeout_ms,
        counters=counters,
    )
