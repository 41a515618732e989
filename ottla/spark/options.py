"""The options of `spark.read` and `spark.readStream`, read and checked on the driver before anything is connected.

Names, meanings and defaults are those of Spark's own Kafka source (Spark's "Structured Streaming + Kafka Integration
Guide"), so that a query needs only another format to move between the two. Spark passes option names in any case. An
unknown option is an error, since a misspelt `startingOffset` would silently read everything.
Every refusal is an OptionError whose message names the option and says what would be right.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ottla.spark.client_options import KAFKA_NAMES, WITHOUT_EFFECT, ClientSettings, client_settings
from ottla.spark.errors import OptionError
from ottla.spark.option_names import KAFKA_PREFIX, unknown, warning_of, without_effect
from ottla.spark.option_values import boolean, duration_ms, integer, json_partition_lists, json_partition_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

EARLIEST_OFFSET, LATEST_OFFSET = -2, -1  # earliest and latest in the JSON of startingOffsets

TopicPartition = tuple[str, int]


@dataclass(frozen=True)
class Subscribe:
    """Option `subscribe`: all partitions of the named topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class SubscribePattern:
    """Option `subscribePattern`: all partitions of the topics with a match in their name, internal ones left out.

    A match anywhere in the name is enough, as in Spark's source since it uses the Admin client (3.4).
    """

    pattern: re.Pattern[str]


@dataclass(frozen=True)
class Assign:
    """Option `assign`: only these partitions."""

    partitions: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Earliest:
    """From the first record of the log."""


@dataclass(frozen=True)
class Latest:
    """Up to the last record of the log when the query is planned; for a stream's start: after that record."""


@dataclass(frozen=True)
class Offsets:
    """An offset per partition; EARLIEST_OFFSET and LATEST_OFFSET mean the ends of the log."""

    offsets: Mapping[TopicPartition, int]
    option: str


@dataclass(frozen=True)
class Timestamps:
    """The first record at or after a time in milliseconds: one for all partitions, or one for each."""

    everywhere: int | None
    by_partition: Mapping[TopicPartition, int]
    option: str


@dataclass(frozen=True)
class RateLimits:
    """How many offsets a micro-batch of a stream takes; None: no such limit. The delay is in milliseconds."""

    most: int | None = None
    least: int | None = None
    longest_delay_ms: int = 0


@dataclass(frozen=True)
class ReadOptions:
    """The options of a query. `min_partitions` and `max_records_per_partition` are None when not set.

    `ending` is None for a stream; `limits` has no meaning for a batch query.
    """

    selection: Subscribe | SubscribePattern | Assign
    starting: Earliest | Latest | Offsets | Timestamps
    ending: Latest | Offsets | Timestamps | None
    limits: RateLimits
    start_at_latest_without_match: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_headers: bool
    client: ClientSettings
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """What to log before the query is planned. Not when the options are read: Spark makes a reader in two processes."""


_STRATEGIES = ("error", "latest")

_OPTIONS = {
    name.lower(): name
    for name in (
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
        "endingTimestamp",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "minPartitions",
        "maxRecordsPerPartition",
        "failOnDataLoss",
        "includeHeaders",
        "groupIdPrefix",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
    )
}
"""Names in lower case, as Spark compares them, to the documented names."""

_STREAMING_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

DEFAULT_TRIGGER_DELAY = "15m"

_NO_CATALOG = (
    "a topic cannot be a table of the catalog: Spark keeps such a table's options from a data source in Python; "
    "CREATE TEMPORARY VIEW name USING ottla OPTIONS (...) takes them"
)


def read_options(raw: Mapping[str, str]) -> ReadOptions:
    """Read the options of a batch query. Raises OptionError for the first that cannot be used."""
    given, kafka = _sorted_out(raw)
    notices = _without_effect(given, kafka)
    notices += [f"option {name} is ignored in a batch query" for name in _STREAMING_ONLY if name in given]
    starting, ending = _starting(given, "earliest"), _ending(given)
    if isinstance(starting, Latest):
        raise OptionError("startingOffsets: a batch query cannot start at latest")
    if isinstance(starting, Offsets):
        for (topic, partition), offset in starting.offsets.items():
            if offset == LATEST_OFFSET:
                raise OptionError(f"startingOffsets: a batch query cannot start at latest (-1) in {topic}-{partition}")
    _check_time_order(starting, ending)
    return replace(_options(given, kafka, starting, ending, RateLimits()), warnings=tuple(notices))


def stream_options(raw: Mapping[str, str]) -> ReadOptions:
    """Read the options of a stream. Raises OptionError for the first that cannot be used."""
    given, kafka = _sorted_out(raw)
    for name in _BATCH_ONLY:
        if name in given:
            raise OptionError(f"{name}: a stream has no end; leave the option away, or use spark.read")
    options = _options(given, kafka, _starting(given, "latest"), None, _limits(given))
    return replace(options, warnings=tuple(_without_effect(given, kafka)))


def _without_effect(given: Mapping[str, str], kafka: Mapping[str, str]) -> list[str]:
    names = without_effect(kafka, WITHOUT_EFFECT)
    warning = warning_of([*names, "groupIdPrefix"] if "groupIdPrefix" in given else names)
    return [warning] if warning else []


def wants_headers(raw: Mapping[str, str]) -> bool:
    """Return whether the columns include the headers. The options may be those of a batch query or of a stream.

    Raises OptionError for options that are wrong for both.
    """
    given, kafka = _sorted_out(raw)
    return _options(given, kafka, _starting(given, "latest"), _ending(given), _limits(given)).include_headers


def _options(
    given: Mapping[str, str],
    kafka: Mapping[str, str],
    starting: Earliest | Latest | Offsets | Timestamps,
    ending: Latest | Offsets | Timestamps | None,
    limits: RateLimits,
) -> ReadOptions:
    return ReadOptions(
        selection=_selection(given),
        starting=starting,
        ending=ending,
        limits=limits,
        start_at_latest_without_match=_strategy(given) == "latest",
        min_partitions=_count(given, "minPartitions"),
        max_records_per_partition=_count(given, "maxRecordsPerPartition"),
        fail_on_data_loss=boolean("failOnDataLoss", given.get("failOnDataLoss", "true")),
        include_headers=boolean("includeHeaders", given.get("includeHeaders", "false")),
        client=client_settings(kafka, given),
    )


def _count(given: Mapping[str, str], option: str) -> int | None:
    return integer(option, given[option], 1) if option in given else None


def _limits(given: Mapping[str, str]) -> RateLimits:
    most, least = _count(given, "maxOffsetsPerTrigger"), _count(given, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}")
    delay = given.get("maxTriggerDelay", DEFAULT_TRIGGER_DELAY)
    return RateLimits(most, least, duration_ms("maxTriggerDelay", delay))


def _sorted_out(raw: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Separate the source's own options, under their documented names, from those of the Kafka client."""
    given: dict[str, str] = {}
    kafka: dict[str, str] = {}
    if not raw or "provider" in raw:  # what Spark passes for a table when it is read, and when it is created
        raise OptionError(_NO_CATALOG)
    for key, value in raw.items():
        name = key.lower()
        if name in _OPTIONS:
            given[_OPTIONS[name]] = value
        elif name.startswith(KAFKA_PREFIX):
            kafka[name] = value
        elif name == "topic":
            raise OptionError("option topic is for writing; a query reads by option subscribe")
        elif name == "path":
            raise OptionError("load() takes no path; name the topic by option subscribe")
        else:
            listed = f"{', '.join(sorted(_OPTIONS.values()))} and kafka.*"
            raise OptionError(unknown(key, {*_OPTIONS.values(), *KAFKA_NAMES}, listed))
    return given, kafka


def _selection(given: Mapping[str, str]) -> Subscribe | SubscribePattern | Assign:
    named = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(named) != 1:
        found = " and ".join(named) if named else "none of them"
        raise OptionError(f"exactly one of subscribe, subscribePattern and assign must be given; found {found}")
    option, value = named[0], given[named[0]]
    if option == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        if not topics:
            raise OptionError("subscribe: no topic is named")
        return Subscribe(topics)
    if option == "subscribePattern":
        if not value.strip():
            raise OptionError("subscribePattern: no pattern is given")
        return SubscribePattern(_pattern(value.strip()))
    return Assign(json_partition_lists("assign", value))


def _pattern(value: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # what means an operation on sets in Java, and nothing in Python
        try:
            return re.compile(value)
        except (re.error, FutureWarning) as wrong:
            raise OptionError(f"subscribePattern: {value!r} is no regular expression of Python's: {wrong}") from None


def _starting(given: Mapping[str, str], default: str) -> Earliest | Latest | Offsets | Timestamps:
    """Read the start: one time overrides times by partition, and these override offsets, as in Spark's source."""
    times = _timestamps(given, "startingTimestamp", "startingOffsetsByTimestamp")
    if times is not None:
        return times
    value = given.get("startingOffsets", default).strip()
    if value.lower() == "earliest":
        return Earliest()
    if value.lower() == "latest":
        return Latest()
    return Offsets(json_partition_numbers("startingOffsets", value, smallest=EARLIEST_OFFSET), "startingOffsets")


def _ending(given: Mapping[str, str]) -> Latest | Offsets | Timestamps:
    times = _timestamps(given, "endingTimestamp", "endingOffsetsByTimestamp")
    if times is not None:
        return times
    value = given.get("endingOffsets", "latest").strip()
    if value.lower() == "latest":
        return Latest()
    if value.lower() == "earliest":
        raise OptionError("endingOffsets: a batch query cannot end at earliest")
    offsets = json_partition_numbers("endingOffsets", value, smallest=EARLIEST_OFFSET)
    for (topic, partition), offset in offsets.items():
        if offset == EARLIEST_OFFSET:
            raise OptionError(f"endingOffsets: a batch query cannot end at earliest (-2) in {topic}-{partition}")
    return Offsets(offsets, "endingOffsets")


def _timestamps(given: Mapping[str, str], everywhere: str, by_partition: str) -> Timestamps | None:
    if everywhere in given:
        return Timestamps(integer(everywhere, given[everywhere], 0), {}, everywhere)
    if by_partition in given:
        return Timestamps(None, json_partition_numbers(by_partition, given[by_partition], smallest=0), by_partition)
    return None


def _check_time_order(starting: object, ending: object) -> None:
    if not isinstance(starting, Timestamps) or not isinstance(ending, Timestamps):
        return
    pairs = [("", starting.everywhere, ending.everywhere)]
    for partition in starting.by_partition.keys() | ending.by_partition.keys():
        start = starting.by_partition.get(partition, starting.everywhere)
        end = ending.by_partition.get(partition, ending.everywhere)
        pairs.append((f" in {partition[0]}-{partition[1]}", start, end))
    for where, start, end in pairs:
        if start is not None and end is not None and end < start:
            raise OptionError(f"{ending.option} {end} is before {starting.option} {start}{where}")


def _strategy(given: Mapping[str, str]) -> str:
    value = given.get("startingOffsetsByTimestampStrategy", "error").strip().lower()
    if value not in _STRATEGIES:
        raise OptionError(f"startingOffsetsByTimestampStrategy: {value!r} is neither error nor latest")
    return value
