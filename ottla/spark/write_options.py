"""The options and columns of `df.write` and `df.writeStream`, checked on the driver before a task starts.

The columns are those of Spark's own Kafka sink: `value` (required), `key`, `headers`, `partition`, `topic`; and with
`includeTimestamp`, which Spark's does not have, `timestamp`. Others are ignored, so that rows read from a topic can be
written to another one unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.spark.client_options import ClientSettings
from ottla.spark.errors import OptionError, SchemaError
from ottla.spark.option_names import KAFKA_PREFIX, unknown, warning_of, without_effect
from ottla.spark.option_values import boolean, shown
from ottla.spark.producer_options import KAFKA_NAMES, WITHOUT_EFFECT, ProducerSettings, producer_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

_NO_OPTIONS = (
    "no options: a sink needs kafka.bootstrap.servers and a topic. A table of the catalog cannot be written to: Spark "
    'keeps its options from a data source in Python; write.format("ottla").options(...).save() takes them'
)

_LONGEST_TOPIC = 249
_TOPIC_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

_FROM_SPARK = frozenset({"checkpointlocation", "queryname"})
"""Spark's own options of a stream, which it passes with the others."""

_OWN = ("topic", "includeTimestamp", "exactlyOnceName", "progressTopic")
_PROGRESS_PREFIX = "spark-progress-"
_LONGEST_NAME = 200

_FOR_READING = frozenset({"subscribe", "subscribepattern", "assign"})

_TEXT_OR_BYTES = ("string", "binary")
_COLUMNS = {
    "value": _TEXT_OR_BYTES,
    "key": _TEXT_OR_BYTES,
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "topic": ("string",),
    "timestamp": ("timestamp",),
}


@dataclass(frozen=True)
class ExactlyOnce:
    """The options of a sink that writes in transactions."""

    name: str
    """The user's name of the sink, which its transactional ids begin with."""
    topic: str
    """Where the sink keeps its progress."""
    timeout_ms: int
    """After how long the coordinator aborts a transaction."""


@dataclass(frozen=True)
class WriteOptions:
    """The options of a sink. `topic` is None when the rows have one; `columns` are the sink's columns in the rows."""

    topic: str | None
    columns: frozenset[str]
    client: ClientSettings
    producer: ProducerSettings
    warning: str
    """About options without effect; an empty text for none."""
    once: ExactlyOnce | None = None
    """How rows are written exactly once; None: at least once."""


def write_options(raw: Mapping[str, str], schema: StructType) -> WriteOptions:
    """Read the options of a sink for rows of this schema. Raises OptionError or SchemaError."""
    if not raw:  # what Spark passes for a table of the catalog
        raise OptionError(_NO_OPTIONS)
    topic = None
    include_timestamp = False
    once_name = progress_topic = None
    kafka = {}
    for key, value in raw.items():
        name = key.lower()
        if name == "topic":
            topic = checked_topic(value.strip())
        elif name == "includetimestamp":
            include_timestamp = boolean("includeTimestamp", value)
        elif name == "exactlyoncename":
            once_name = _sink_name(value.strip())
        elif name == "progresstopic":
            progress_topic = checked_topic(value.strip(), "progressTopic")
        elif name.startswith(KAFKA_PREFIX):
            kafka[name] = value
        elif name in _FOR_READING:
            raise OptionError(f"option {key} is for reading; a sink writes to option topic, or to a column topic")
        elif name == "path":
            raise OptionError("save() takes no path; name the topic by option topic")
        elif name not in _FROM_SPARK:
            known = {*_OWN, *KAFKA_NAMES}
            raise OptionError(unknown(key, known, f"{', '.join(_OWN)} and kafka.*"))
    ignored = frozenset() if topic is None else frozenset({"topic"})
    columns = _check_columns(schema, ignored if include_timestamp else ignored | {"timestamp"})
    if include_timestamp and "timestamp" not in columns:
        written = "which includeTimestamp=true is to write"
        raise SchemaError(f"there is no column timestamp, {written}; the rows have {_listed(schema)}")
    if topic is None and "topic" not in columns:
        raise OptionError("no topic: give option topic, or the rows a column topic")
    if progress_topic is not None and once_name is None:
        raise OptionError("progressTopic is for exactlyOnceName, which is not given")
    client, producer = producer_settings(kafka, is_transactional=once_name is not None)
    once = None
    if once_name is not None:
        once = ExactlyOnce(
            once_name, progress_topic or f"{_PROGRESS_PREFIX}{once_name}", producer.transaction_timeout_ms
        )
    warnings = [warning_of(without_effect(kafka, WITHOUT_EFFECT)), _other_case(schema, columns)]
    return WriteOptions(topic, columns, client, producer, "; ".join(filter(None, warnings)), once)


def _sink_name(name: str) -> str:
    """Return the name if topics and transactional ids can begin with it. Raises OptionError otherwise."""
    if not name or len(name) > _LONGEST_NAME or not _TOPIC_CHARACTERS.issuperset(name):
        allowed = f"1 to {_LONGEST_NAME} letters, digits, '.', '_' and '-'"
        raise OptionError(f"exactlyOnceName: {shown(name)} cannot be a sink's name, which has {allowed}")
    return name


def checked_topic(name: str, option: str = "topic") -> str:
    """Return the name if it is valid for a topic. Raises OptionError otherwise."""
    if not name or len(name) > _LONGEST_TOPIC or name in (".", "..") or not _TOPIC_CHARACTERS.issuperset(name):
        raise OptionError(f"{option}: {shown(name)} cannot be a topic's name; letters, digits, '.', '_' and '-' can")
    return name


def _check_columns(schema: StructType, ignored: frozenset[str]) -> frozenset[str]:
    """Return which of the sink's columns, other than the `ignored` ones, the rows have. Raises SchemaError."""
    found = set()
    for field in schema.fields:
        if field.name not in _COLUMNS or field.name in ignored:
            continue
        if field.name in found:
            raise SchemaError(f"there are two columns {field.name}")
        kind = field.dataType.simpleString()
        allowed = _COLUMNS[field.name]
        if kind not in allowed:
            raise SchemaError(f"column {field.name} is {kind}; a sink needs {' or '.join(allowed)}")
        found.add(field.name)
    if "value" not in found:
        raise SchemaError(
            f"there is no column value, which becomes the records' value; the rows have {_listed(schema)}"
        )
    return frozenset(found)


def _other_case(schema: StructType, found: frozenset[str]) -> str:
    """Return a warning about a column `Key`: Spark's SQL takes it for `key`, and its Kafka sink does not."""
    decisive = {"key", "headers", "partition"} - found
    names = [field.name for field in schema.fields if field.name.lower() in decisive]
    wanted = ", ".join(name.lower() for name in names)
    return f"column {', '.join(names)} is not written: rename it to {wanted}, in lower case" if names else ""


def _listed(schema: StructType) -> str:
    return ", ".join(field.name for field in schema.fields)
