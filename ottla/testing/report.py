"""What is in an embedded broker, as text: for the report of a test that has failed."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.shown import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.client.structs import ConsumerRecord
    from ottla.testing.embedded_broker import EmbeddedBroker

MOST_TOPICS: Final = 20
MOST_GROUPS: Final = 20
MOST_RECORDS: Final = 5
"""Of each topic: the last ones."""
MOST_READ: Final = 1_000
"""A topic with more offsets is not read from its beginning, but only where its last records are."""
MOST_CHARACTERS: Final = 120
"""Of a key, a value or a header."""


def describe(broker: EmbeddedBroker) -> str:
    """Its topics with their last records, its groups, and its faults. Raises nothing: it is for a report."""
    if not broker.is_running:
        return "the broker does not run"
    try:
        return "\n".join(_lines(broker))
    except Exception as error:  # a report must not fail the run: a missing login, a damaged log, a library for zstd
        return f"it cannot be described: {type(error).__name__}: {error}"


def _lines(broker: EmbeddedBroker) -> Iterator[str]:
    topics = broker.admin.list_topics()
    yield f"broker at {broker.bootstrap_servers}, {counted(len(topics), 'topic')}"
    for topic in topics[:MOST_TOPICS]:
        records, before = broker.last_records(topic, MOST_READ, MOST_RECORDS)
        yield f"topic {topic}: {counted(before + len(records), 'offset' if before else 'record')}"
        if before or len(records) > MOST_RECORDS:
            yield "  ..."
        yield from (f"  {_shown(record)}" for record in records[-MOST_RECORDS:])
    if len(topics) > MOST_TOPICS:
        yield f"and {counted(len(topics) - MOST_TOPICS, 'other topic')}"
    for group in islice(broker.admin.list_groups(), MOST_GROUPS):
        where = ", ".join(
            f"{place.topic}-{place.partition} at {offset}" for place, offset in broker.committed(group.group_id).items()
        )
        yield f"group {group.group_id}: {group.state or group.group_type}{f', {where}' if where else ''}"
    for fault in broker.faults:
        yield f"fault: {fault}"


def _shown(record: ConsumerRecord) -> str:
    headers = "".join(f", {name}={_short(value)}" for name, value in record.headers)
    return (
        f"partition {record.partition}, offset {record.offset}: {_short(record.key)} = {_short(record.value)}{headers}"
    )


def _short(value: bytes | None) -> str:
    if value is None:
        return "null"
    text = repr(value[: MOST_CHARACTERS + 1])[1:]
    return text if len(value) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}... ({len(value):,} bytes)"
