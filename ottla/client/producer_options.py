"""The options of a Producer."""

# ruff: noqa: RUF009  # the calls make dataclass fields
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ottla.client.interceptors import ProducerInterceptor, to_interceptors
from ottla.client.option_kinds import (
    boolean,
    choice,
    integer,
    option_of,
    optional,
    to_boolean,
    to_function,
    to_integer,
    to_name,
    to_number,
)
from ottla.client.options import ClientKeywords, ClientOptions
from ottla.client.partitioner import PartitionerFunction, PartitionerName, to_rule
from ottla.protocol.records.compression import Compression

Acks = Literal[0, 1, -1, "0", "1", "-1", "all"]
Serializer = Callable[[Any], bytes | None]
"""A function that converts a key or a value to bytes. It is not called for None, which stays None (a tombstone)."""

_LEVELS = {"gzip": (-1, 9), "lz4": (-(2**17), 17), "zstd": (-(2**17), 22)}
"""The bounds of each codec's levels, as in Kafka (lz4 and zstd also have fast negative levels)."""
_LARGEST_IN_FLIGHT_WITH_IDEMPOTENCE = 5
_LINGER_MS = 5.0
"""Kafka's default since 4.0 (KIP-1030)."""
_ACKS: dict[object, int] = {"all": -1, "-1": -1, "0": 0, "1": 1, -1: -1, 0: 0, 1: 1}


def _to_acks(value: object) -> int:
    parsed = _ACKS.get(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else None
    if parsed is None:
        raise ValueError("must be 'all', 1 or 0")
    return parsed


class ProducerKeywords(ClientKeywords, total=False):
    """The options of a Producer as keyword arguments; `ProducerOptions` describes them."""

    acks: Acks
    request_required_acks: Acks
    enable_idempotence: bool | None
    compression_type: str
    compression_level: int | None
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_zstd_level: int | None
    batch_size: int
    linger_ms: float
    max_request_size: int
    buffer_memory: int
    max_block_ms: int
    max_in_flight_requests_per_connection: int
    retries: int
    delivery_timeout_ms: int
    partitioner: PartitionerName | PartitionerFunction
    partitioner_ignore_keys: bool
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    interceptors: Sequence[ProducerInterceptor]
    transactional_id: str | None
    transaction_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions(ClientOptions):
    """The options of a Producer, besides the shared ones."""

    acks: int = option_of("all", _to_acks)
    """The replicas that must have a batch before it counts as delivered: "all" (-1), 1 (the leader) or 0. With 0
    offsets are unknown. Also `request_required_acks`."""
    enable_idempotence: bool | None = optional(None, to_boolean)
    """Whether duplicates are prevented. None: if `acks` and `retries` allow it."""
    compression_type: str = choice("none", tuple(codec.name.lower() for codec in Compression))
    """The codec of batches."""
    compression_level: int | None = optional(None, to_integer(-(2**17)))
    """The level of any codec; None: the codec's own option below, or its default."""
    compression_gzip_level: int | None = optional(None, to_integer(*_LEVELS["gzip"]))
    """The level of gzip."""
    compression_lz4_level: int | None = optional(None, to_integer(*_LEVELS["lz4"]))
    """The level of lz4."""
    compression_zstd_level: int | None = optional(None, to_integer(*_LEVELS["zstd"]))
    """The level of zstd."""
    batch_size: int = integer(64 * 1024)
    """A batch is sent when it has this many bytes (before compression). Kafka's default is 16 KiB."""
    linger_ms: float | None = optional(None, to_number(0))
    """How long a batch that is not full waits for more records. None: 5, but not with a record for which the program
    waits (`send_and_wait`, or the delivery of `send`)."""
    max_request_size: int = integer(1024 * 1024)
    """The largest record, and the largest request, in bytes before compression."""
    buffer_memory: int = integer(32 * 1024 * 1024)
    """The bytes of records that may be waiting; `send` waits for room."""
    max_block_ms: int = integer(60_000)
    """How long `send` waits for room, or for a topic's metadata."""
    max_in_flight_requests_per_connection: int = integer(5, 1)
    """The most requests in flight to one broker; at most 5 with idempotence."""
    retries: int = integer(2**31 - 1)
    """How often a batch is sent again."""
    delivery_timeout_ms: int = optional(None, to_integer(0))
    """The longest time from `send` until a batch is delivered or given up. None: 2 minutes, or the sum of `linger_ms`
    and `request_timeout_ms` if that is more."""
    partitioner: PartitionerName | PartitionerFunction = option_of("murmur2", to_rule)
    """The rule that chooses partitions, or a function; see `Partitioner`."""
    partitioner_ignore_keys: bool = boolean(False)
    """Whether records with a key are treated like those without."""
    key_serializer: Serializer | None = optional(None, to_function)
    """Converts keys to bytes. Without it keys are bytes."""
    value_serializer: Serializer | None = optional(None, to_function)
    """Converts values to bytes. Without it values are bytes."""
    interceptors: Sequence[ProducerInterceptor] = option_of((), to_interceptors(ProducerInterceptor))
    """Objects that get records before they are sent, and their results, in this order."""
    transactional_id: str | None = optional(None, to_name)
    """Makes a producer with transactions. Of two producers with the same id the older one is fenced: it can write
    nothing more, and its open transaction is aborted."""
    transaction_timeout_ms: int = integer(60_000, 1)
    """The coordinator aborts a transaction that is open for longer, and fences its producer; at most the broker's
    `transaction.max.timeout.ms`."""

    @property
    def lingering_ms(self) -> float:
        """How long a batch waits for more records, if the program waits for none of its records."""
        return _LINGER_MS if self.linger_ms is None else self.linger_ms

    @property
    def lingers_awaited(self) -> bool:
        """Whether a batch also waits for more records if the program waits for one of its records."""
        return bool(self.linger_ms)

    def __post_init__(self) -> None:
        ClientOptions.__post_init__(self)
        is_possible = self.acks == -1 and self.retries > 0
        if self.transactional_id is not None and not (is_possible and self.enable_idempotence is not False):
            raise ValueError("transactional_id needs acks='all', retries above 0 and enable_idempotence")
        if self.enable_idempotence is None:
            object.__setattr__(self, "enable_idempotence", is_possible)
        elif self.enable_idempotence and not is_possible:
            raise ValueError("enable_idempotence needs acks='all' and retries above 0")
        in_flight = self.max_in_flight_requests_per_connection
        if self.enable_idempotence and in_flight > _LARGEST_IN_FLIGHT_WITH_IDEMPOTENCE:
            raise ValueError(f"max_in_flight_requests_per_connection must be 1 to 5 with idempotence, not {in_flight}")
        least_ms = self.lingering_ms + self.request_timeout_ms
        given_ms: int | None = self.delivery_timeout_ms
        if given_ms is None:
            object.__setattr__(self, "delivery_timeout_ms", math.ceil(max(120_000, least_ms)))
        elif given_ms < least_ms:
            raise ValueError("delivery_timeout_ms must be at least linger_ms + request_timeout_ms")
        own = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        if self.compression_level is None:
            object.__setattr__(self, "compression_level", own.get(self.compression_type))
        elif self.compression_type in _LEVELS:
            low, high = _LEVELS[self.compression_type]
            if not low <= self.compression_level <= high:
                raise ValueError(
                    f"compression_level must be {low} to {high} for {self.compression_type}, "
                    f"not {self.compression_level}"
                )
