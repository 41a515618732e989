"""The definition of a coordinator: its internal topic, the codec of its records, and its shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ottla.broker.coordination.shard import CoordinatorShard

if TYPE_CHECKING:
    from ottla.broker.coordination.records import RecordCodec
    from ottla.broker.coordination.shard import ShardContext

S = TypeVar("S", bound=CoordinatorShard)


class LoadCounters(Protocol):
    """The totals of a coordinator's loads, for its metrics."""

    loads: int
    load_us: int
    loaded_records: int
    skipped_records: int


def java_hash(text: str) -> int:
    """`Utils.abs(text.hashCode())` of Java: a hash over UTF-16 units, without its sign; 0 for the smallest number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    if value >= 1 << 31:
        value = (1 << 32) - value
    return 0 if value == 1 << 31 else value


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorDefinition(Generic[S]):
    """The parameters of a `CoordinatorRuntime`.

    `partitions` and `configs` are used to create the topic; a topic that exists keeps its own. `noun` names one of the
    things that are coordinated ("group"), in log lines and errors. `write_timeout_ms` limits the time that replies wait
    for the disk. `hash_of` places a key in a partition, by its remainder; Kafka's coordinators use Java's hash.
    """

    topic: str
    partitions: int
    configs: tuple[tuple[str, str], ...]
    noun: str
    codec: RecordCodec
    make_shard: Callable[[ShardContext], S]
    write_timeout_ms: int
    counters: LoadCounters
    hash_of: Callable[[str], int] = java_hash
