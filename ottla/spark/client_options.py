"""The `kafka.*` options: which of the Kafka consumer's keys this source follows, accepts, and refuses.

Followed keys change what the client does; the client core reads those of TLS and SASL, as for every client. Keys about
groups, polling and reconnecting are accepted and do nothing: Spark plans the offsets, and this source has no consumer
group. So a query written for Spark's own source runs unchanged. Keys that Spark's source forbids are refused with the
option to use instead, and unknown keys with the name that was probably meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.client_core.security import DEFAULTS, Security, SecurityProblem, read_security
from ottla.spark.errors import OptionError
from ottla.spark.option_names import KAFKA_PREFIX, check_without_effect, nearest, unknown
from ottla.spark.option_values import Address, addresses, boolean, integer, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.spark.option_names import Kind

LARGEST_FETCH_BYTES = 256 * 1024 * 1024
_LARGEST_WAIT_MS = 2**31 - 1
_LARGEST_RETRIES = 1000


_NO_SECURITY = Security()


@dataclass(frozen=True)
class ClientSettings:
    """How a task connects and fetches; plain values, since they are pickled to the executors."""

    bootstrap_servers: tuple[Address, ...]
    client_id: str
    fetch_max_bytes: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    connect_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    receive_buffer_bytes: int
    check_crcs: bool
    read_committed: bool
    poll_timeout_ms: int
    offset_retries: int
    offset_retry_interval_ms: int
    security: Security = _NO_SECURITY


_FOLLOWED = {
    "bootstrap.servers": "",
    "check.crcs": "true",
    "client.id": "ottla-spark",
    "fetch.max.bytes": str(8 * 1024 * 1024),
    "fetch.max.wait.ms": "500",
    "fetch.min.bytes": "1",
    "isolation.level": "read_uncommitted",
    "max.partition.fetch.bytes": "",
    "receive.buffer.bytes": "-1",
    "request.timeout.ms": "30000",
    "retry.backoff.ms": "100",
    "socket.connection.setup.timeout.ms": "10000",
}
"""Keys that change something, with their defaults. A Fetch request has one partition, so the smaller of the two
limits of bytes applies; the default is the size that decodes fastest."""

WITHOUT_EFFECT: Mapping[str, Kind] = {
    "allow.auto.create.topics": "boolean",
    "client.dns.lookup": "text",
    "client.rack": "text",
    "connections.max.idle.ms": "number",
    "default.api.timeout.ms": "number",
    "enable.metrics.push": "boolean",
    "exclude.internal.topics": "boolean",
    "group.id": "text",
    "group.instance.id": "text",
    "group.protocol": "text",
    "heartbeat.interval.ms": "number",
    "max.poll.interval.ms": "number",
    "max.poll.records": "number",
    "metadata.max.age.ms": "number",
    "metric.reporters": "text",
    "metrics.num.samples": "number",
    "metrics.recording.level": "text",
    "metrics.sample.window.ms": "number",
    "partition.assignment.strategy": "text",
    "reconnect.backoff.max.ms": "number",
    "reconnect.backoff.ms": "number",
    "retry.backoff.max.ms": "number",
    "send.buffer.bytes": "number",
    "session.timeout.ms": "number",
    "socket.connection.setup.timeout.max.ms": "number",
}
"""Keys that are accepted and change nothing, and what their values have to be."""

_REFUSED = {
    "auto.offset.reset": "use option startingOffsets",
    "enable.auto.commit": "this source commits no offsets",
    "interceptor.classes": "there are no Java interceptors here",
    "key.deserializer": "keys are always binary; convert the column",
    "key.serializer": "this is a source",
    "value.deserializer": "values are always binary; convert the column",
    "value.serializer": "this is a source",
}
"""Keys that Spark's own source forbids, with what to do instead."""

KNOWN_KEYS = _FOLLOWED.keys() | WITHOUT_EFFECT.keys() | DEFAULTS.keys()
KAFKA_NAMES = frozenset(f"{KAFKA_PREFIX}{key}" for key in KNOWN_KEYS)
"""The `kafka.*` options of a reader that are not refused."""


def client_settings(kafka: Mapping[str, str], given: Mapping[str, str]) -> ClientSettings:
    """Read the `kafka.*` options (names in lower case), and the source's own options for the client."""
    values = dict(_FOLLOWED)
    secured: dict[str, str] = {}
    for name, value in kafka.items():
        key = name.removeprefix(KAFKA_PREFIX)
        _check_known(key, name)
        if key in WITHOUT_EFFECT:
            check_without_effect(name, value, WITHOUT_EFFECT[key])
        (secured if key in DEFAULTS else values)[key] = value.strip()
    if not values["bootstrap.servers"]:
        raise OptionError("option kafka.bootstrap.servers is missing; it names brokers as host:port,host:port")
    if values["isolation.level"] not in ("read_uncommitted", "read_committed"):
        level = shown(values["isolation.level"])
        raise OptionError(f"kafka.isolation.level: {level} is neither read_uncommitted nor read_committed")
    return ClientSettings(
        bootstrap_servers=addresses("kafka.bootstrap.servers", values["bootstrap.servers"]),
        client_id=values["client.id"],
        fetch_max_bytes=_fetch_bytes(values),
        fetch_min_bytes=_number(values, "fetch.min.bytes", 0, LARGEST_FETCH_BYTES),
        fetch_max_wait_ms=_number(values, "fetch.max.wait.ms", 0, _LARGEST_WAIT_MS),
        connect_timeout_ms=_number(values, "socket.connection.setup.timeout.ms", 1, _LARGEST_WAIT_MS),
        request_timeout_ms=_number(values, "request.timeout.ms", 1, _LARGEST_WAIT_MS),
        retry_backoff_ms=_number(values, "retry.backoff.ms", 0, _LARGEST_WAIT_MS),
        receive_buffer_bytes=_number(values, "receive.buffer.bytes", -1, _LARGEST_WAIT_MS),
        check_crcs=boolean("kafka.check.crcs", values["check.crcs"]),
        read_committed=values["isolation.level"] == "read_committed",
        poll_timeout_ms=_own(given, "kafkaConsumer.pollTimeoutMs", "120000", 1, _LARGEST_WAIT_MS),
        offset_retries=_own(given, "fetchOffset.numRetries", "3", 0, _LARGEST_RETRIES),
        offset_retry_interval_ms=_own(given, "fetchOffset.retryIntervalMs", "1000", 0, _LARGEST_WAIT_MS),
        security=_security(secured),
    )


def _security(given: Mapping[str, str]) -> Security:
    try:
        return read_security(given)
    except SecurityProblem as wrong:
        raise OptionError(f"{KAFKA_PREFIX}{wrong.option} {wrong.problem}") from None


def _check_known(key: str, name: str) -> None:
    if key in _REFUSED:
        raise OptionError(f"option {name} cannot be set: {_REFUSED[key]}")
    if key in KNOWN_KEYS:
        return
    if key.startswith(("ssl.", "sasl.")) and not nearest(name, KAFKA_NAMES):
        known = ", ".join(f"{KAFKA_PREFIX}{one}" for one in DEFAULTS if one.startswith(("ssl.", "sasl.")))
        raise OptionError(f"option {name} is about TLS or SASL, and none that this source has; it has {known}")
    raise OptionError(unknown(name, KAFKA_NAMES, f"kafka.{', kafka.'.join(sorted(_FOLLOWED))}"))


def _fetch_bytes(values: Mapping[str, str]) -> int:
    most = _number(values, "fetch.max.bytes", 1, _LARGEST_WAIT_MS)
    if values["max.partition.fetch.bytes"]:
        most = min(most, _number(values, "max.partition.fetch.bytes", 1, _LARGEST_WAIT_MS))
    return min(most, LARGEST_FETCH_BYTES)


def _number(values: Mapping[str, str], key: str, smallest: int, largest: int) -> int:
    return integer(f"{KAFKA_PREFIX}{key}", values[key], smallest, largest)


def _own(given: Mapping[str, str], option: str, default: str, smallest: int, largest: int) -> int:
    return integer(option, given.get(option, default), smallest, largest)
