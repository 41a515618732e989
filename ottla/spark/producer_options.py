"""The `kafka.*` options of a sink: which of the Kafka producer's keys it follows, accepts, and refuses.

Those about connections are the reader's (ottla.spark.client_options). Keys for records that arrive one by one are
accepted and do nothing, since a task has its records already. So a query for Spark's own sink runs unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.client_core.security import DEFAULTS
from ottla.protocol.records.compression import Compression
from ottla.spark.client_options import ClientSettings, client_settings
from ottla.spark.errors import OptionError
from ottla.spark.option_names import KAFKA_PREFIX, check_without_effect, unknown
from ottla.spark.option_values import boolean, integer, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.spark.option_names import Kind

_LARGEST_BYTES = 256 * 1024 * 1024
_LARGEST_WAIT_MS = 2**31 - 1


@dataclass(frozen=True)
class ProducerSettings:
    """How a task writes; plain values, since they are pickled to the executors. `acks` is -1 (all) or 1."""

    acks: int
    batch_bytes: int
    compression: Compression
    compression_level: int | None
    delivery_timeout_ms: int
    is_idempotent: bool
    max_request_bytes: int
    transaction_timeout_ms: int
    """Only for a sink that writes exactly once."""


_SHARED = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "receive.buffer.bytes",
        "request.timeout.ms",
        "retry.backoff.ms",
        "socket.connection.setup.timeout.ms",
    }
)
"""Followed keys with the same meaning as for a reader."""

_FOLLOWED = {
    "acks": "all",
    "batch.size": str(64 * 1024),
    "compression.gzip.level": "",
    "compression.lz4.level": "",
    "compression.type": "none",
    "compression.zstd.level": "",
    "delivery.timeout.ms": "120000",
    "enable.idempotence": "",
    "max.request.size": str(1024 * 1024),
    "transaction.timeout.ms": "900000",
}
"""Keys that change something, with their defaults: Kafka's, except that batches are four times as large, since a task
does not wait until they are full, and that a transaction may last as long as brokers allow by default
(`transaction.max.timeout.ms`): until the rows of a task are all computed."""

WITHOUT_EFFECT: Mapping[str, Kind] = {
    "buffer.memory": "number",
    "client.dns.lookup": "text",
    "connections.max.idle.ms": "number",
    "enable.metrics.push": "boolean",
    "linger.ms": "number",
    "max.block.ms": "number",
    "max.in.flight.requests.per.connection": "number",
    "metadata.max.age.ms": "number",
    "metadata.max.idle.ms": "number",
    "metric.reporters": "text",
    "metrics.num.samples": "number",
    "metrics.recording.level": "text",
    "metrics.sample.window.ms": "number",
    "partitioner.adaptive.partitioning.enable": "boolean",
    "partitioner.availability.timeout.ms": "number",
    "reconnect.backoff.max.ms": "number",
    "reconnect.backoff.ms": "number",
    "retries": "number",
    "retry.backoff.max.ms": "number",
    "send.buffer.bytes": "number",
    "socket.connection.setup.timeout.max.ms": "number",
}
"""Keys that are accepted and change nothing, and what their values have to be."""

_REFUSED = {
    "interceptor.classes": "there are no Java interceptors here",
    "key.serializer": "keys are written as they are; convert the column to string or binary",
    "partitioner.class": "give the rows a column partition, or leave it to the key (murmur2, as Java)",
    "partitioner.ignore.keys": "leave the column key away, or give the rows a column partition",
    "transactional.id": "option exactlyOnceName names the sink, and its tasks make their ids from that",
    "value.serializer": "values are written as they are; convert the column to string or binary",
}

KAFKA_NAMES = frozenset(f"{KAFKA_PREFIX}{key}" for key in (*_SHARED, *_FOLLOWED, *WITHOUT_EFFECT, *DEFAULTS))
"""The `kafka.*` options of a sink that are not refused."""


def producer_settings(
    kafka: Mapping[str, str], *, is_transactional: bool = False
) -> tuple[ClientSettings, ProducerSettings]:
    """Read the `kafka.*` options of a sink (names in lower case). Raises OptionError."""
    shared = {}
    values = dict(_FOLLOWED)
    for name, value in kafka.items():
        key = name.removeprefix(KAFKA_PREFIX)
        if key in _SHARED or key == "security.protocol" or key.startswith(("ssl.", "sasl.")):
            shared[name] = value
        elif key in _REFUSED:
            raise OptionError(f"option {name} cannot be set: {_REFUSED[key]}")
        elif key == "transaction.timeout.ms" and not is_transactional:
            raise OptionError(f"option {name} is for exactlyOnceName; without that there are no transactions")
        elif key in _FOLLOWED:
            values[key] = value.strip()
        elif key in WITHOUT_EFFECT:
            check_without_effect(name, value, WITHOUT_EFFECT[key])
        else:
            listed = ", kafka.".join(sorted({"security.protocol", *_SHARED, *_FOLLOWED}))
            raise OptionError(unknown(name, KAFKA_NAMES, f"kafka.{listed}"))
    client = client_settings(shared, {})
    acks = _acks(values["acks"])
    is_idempotent = _idempotence(values["enable.idempotence"], acks)
    if is_transactional and not is_idempotent:
        raise OptionError("exactlyOnceName needs kafka.acks=all and kafka.enable.idempotence=true, the defaults")
    compression = _compression(values["compression.type"])
    return client, ProducerSettings(
        acks=acks,
        batch_bytes=_number(values, "batch.size", 1, _LARGEST_BYTES),
        compression=compression,
        compression_level=_level(compression, values),
        delivery_timeout_ms=_number(values, "delivery.timeout.ms", 1, _LARGEST_WAIT_MS),
        is_idempotent=is_idempotent,
        max_request_bytes=_number(values, "max.request.size", 1, _LARGEST_BYTES),
        transaction_timeout_ms=_number(values, "transaction.timeout.ms", 1, _LARGEST_WAIT_MS),
    )


def _acks(value: str) -> int:
    if value == "0":
        raise OptionError("kafka.acks: 0 would lose records silently; all and 1 are possible")
    known = {"all": -1, "-1": -1, "1": 1}
    if value.lower() not in known:
        raise OptionError(f"kafka.acks: {shown(value)} is none of all, -1, 1")
    return known[value.lower()]


def _idempotence(value: str, acks: int) -> bool:
    """Return whether to be idempotent: by default if acks allow it, as in Kafka's producer."""
    if not value:
        return acks == -1
    wanted = boolean("kafka.enable.idempotence", value)
    if wanted and acks != -1:
        raise OptionError("kafka.enable.idempotence needs kafka.acks=all")
    return wanted


def _compression(value: str) -> Compression:
    try:
        return Compression.named(value)
    except ValueError:
        raise OptionError(f"kafka.compression.type: {shown(value)} is none of none, gzip, snappy, lz4, zstd") from None


_LEVELS = {Compression.GZIP: (1, 9), Compression.LZ4: (1, 17), Compression.ZSTD: (-131072, 22)}


def _level(compression: Compression, values: Mapping[str, str]) -> int | None:
    """Return the level of the codec; those of other codecs are only checked."""
    levels = {}
    for codec, (smallest, largest) in _LEVELS.items():
        key = f"compression.{codec.name.lower()}.level"
        if values[key]:
            levels[codec] = _number(values, key, smallest, largest)
    return levels.get(compression)


def _number(values: Mapping[str, str], key: str, smallest: int, largest: int) -> int:
    return integer(f"{KAFKA_PREFIX}{key}", values[key], smallest, largest)
