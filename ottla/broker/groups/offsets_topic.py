"""`__consumer_offsets`, for the runtime of coordinators: its configuration, and the codec of its records.

`ottla.protocol.stored.group` describes keys and values.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.coordination.definition import CoordinatorDefinition
from ottla.broker.coordination.records import RecordCodec
from ottla.broker.groups.shard import GroupShard
from ottla.broker.metadata.internal_topics import OFFSETS_MAX_MESSAGE_BYTES
from ottla.protocol.records.compression import Compression
from ottla.protocol.stored.group import (
    decode_group_record,
    encode_group_key,
    encode_group_value,
)
from ottla.storage.formats.layout import OFFSETS_TOPIC

if TYPE_CHECKING:
    from ottla.broker.groups.settings import GroupServices
    from ottla.config.broker import BrokerConfig

OFFSET_KEY_TYPE = b"\x00\x01"
LEGACY_OFFSET_KEY_TYPE = b"\x00\x00"


def groups_definition(config: BrokerConfig, services: GroupServices) -> CoordinatorDefinition[GroupShard]:
    """The definition of the group coordinator, by the broker's configuration."""
    return CoordinatorDefinition(
        topic=OFFSETS_TOPIC,
        partitions=config.offsets_topic_num_partitions,
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(config.offsets_topic_segment_bytes)),
            ("max.message.bytes", str(OFFSETS_MAX_MESSAGE_BYTES)),
        ),
        noun="group",
        codec=RecordCodec(
            encode_key=encode_group_key,
            encode_value=encode_group_value,
            decode=decode_group_record,
            newest_only={OFFSET_KEY_TYPE: OFFSET_KEY_TYPE, LEGACY_OFFSET_KEY_TYPE: OFFSET_KEY_TYPE},
            compression=Compression(config.offsets_topic_compression_codec),
        ),
        make_shard=partial(GroupShard, services=services),
        write_timeout_ms=config.offsets_commit_timeout_ms,
        counters=services.counters,
    )
