"""The definition of `__transaction_state` for the coordinator runtime: its configuration, and its record codec."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.coordination.definition import CoordinatorDefinition
from ottla.broker.coordination.records import RecordCodec
from ottla.broker.transactions.shard import TransactionShard
from ottla.protocol.stored.transaction import (
    decode_transaction_record,
    encode_transaction_key,
    encode_transaction_value,
)
from ottla.storage.formats.layout import TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from ottla.broker.transactions.settings import TransactionServices
    from ottla.config.broker import BrokerConfig
    from ottla.protocol.message import Struct

KEY_TYPE: Final = b"\x00\x00"
WRITE_TIMEOUT_MS: Final = 5_000
"""How long a reply waits for the disk: Kafka's `request.timeout.ms` of appends to this topic."""


def transactions_definition(
    config: BrokerConfig, services: TransactionServices
) -> CoordinatorDefinition[TransactionShard]:
    """The definition of the transaction coordinator, from the broker's configuration."""

    def encode_value(value: Struct) -> bytes:
        return encode_transaction_value(value, min(services.version(), 1))

    return CoordinatorDefinition(
        topic=TRANSACTIONS_TOPIC,
        partitions=config.transaction_state_log_num_partitions,
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
        ),
        noun="transactional id",
        codec=RecordCodec(
            encode_key=encode_transaction_key,
            encode_value=encode_value,
            decode=decode_transaction_record,
            newest_only={KEY_TYPE: KEY_TYPE},
        ),
        make_shard=partial(TransactionShard, services=services),
        write_timeout_ms=WRITE_TIMEOUT_MS,
        counters=services.counters,
    )
