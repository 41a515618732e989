"""Members of share groups on a real broker, with librdkafka's share consumer, which is independent of Ottla's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Message, ShareConsumer

from ottla.client import ConfigChange, ConfigResource
from ottla.client.blocking import Admin

WAIT_S = 20.0


def begin_with_the_first_record(bootstrap: str, group: str, **settings: str) -> None:
    """Set where a share group begins, and its other settings (`record_lock_duration_ms="500"`)."""
    settings = {"auto_offset_reset": "earliest", **settings}
    changes = [ConfigChange.set(f"share.{key.replace('_', '.')}", value) for key, value in settings.items()]
    with Admin(bootstrap) as admin:
        admin.alter_configs({ConfigResource.group(group): changes})


@contextmanager
def share_member(bootstrap: str, group: str, *topics: str, explicit: bool = True) -> Iterator[ShareConsumer]:
    """A member of a share group, until the end of the block."""
    mode = {"share.acknowledgement.mode": "explicit"} if explicit else {}
    member = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": "sharer", **mode})
    member.subscribe(list(topics))
    try:
        yield member
    finally:
        member.close()


def received(member: ShareConsumer, count: int, within_s: float = WAIT_S) -> list[Message]:
    """So many records, or those that come within the time."""
    records: list[Message] = []
    deadline = time.monotonic() + within_s
    while len(records) < count and time.monotonic() < deadline:
        for record in member.poll(timeout=0.2):
            assert record.error() is None, record.error()
            records.append(record)
    return records


def acknowledge(member: ShareConsumer, records: list[Message]) -> None:
    """Acknowledge records, and wait until that is durable."""
    for record in records:
        member.acknowledge(record)
    errors = [error for error in (member.commit_sync(WAIT_S) or {}).values() if error is not None]
    assert errors == []
