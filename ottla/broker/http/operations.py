"""Operations that an operator may request from a running broker over HTTP: by POST, from this machine only.

    POST /log/roll?partition=orders-0      begin a new segment; nothing happens when the active one is empty
    POST /log/retain[?topic=orders]        delete now what retention would delete at its next check
    POST /log/clean?topic=orders           compact now what the cleaner would compact later: begins, does not wait
    POST /log/cleaning?topic=orders        the state of that compaction
    POST /log/explain?partition=orders-0   why each segment is kept, deleted, or not yet cleaned
    POST /log/trust-clock                  the wall clock is right although it has jumped (storage/files/clock_trust.py)

All of them do what the broker does by itself sooner or later, or show it, so they allow nothing that the configuration
does not allow anyway. Still they change things. So `server.py` refuses them (403) unless the peer's address is a
loopback one, whatever `ottla.http.listener` is bound to. It also refuses requests that a web page has made (they carry
`Origin`, or name the page's host: `ottla/addressed.py`) or could have made (`X-Ottla` is missing). A proxy on this
machine makes its clients look like this machine: it must not forward `/log/`.

Answers are JSON. A malformed request is 400, an unknown topic or partition 404, a log that takes no writes 503, each
with `error` in a line for people. Operations run on the broker's thread, as the retention chore does; long ones run in
steps, and their answer is `Pending`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from ottla.broker.catalog.topic import find_partition
from ottla.broker.chores.retaining import retain as retain_partition
from ottla.broker.http.server import Answer, Operations, Page
from ottla.broker.peer import Endpoint, Peer
from ottla.broker.runtime.pending import Pending
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.errors import CorruptBatch
from ottla.storage.cleaner.cleanable import LogToAssess, assess
from ottla.storage.formats.layout import DirectoryKind, parse_partition_directory
from ottla.storage.tools.housekeeping import segment_status

if TYPE_CHECKING:
    from ottla.broker.chores.log_cleaner import LogCleaner
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.security.audit import Audit
    from ottla.broker.services import Services
    from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)

PARTITIONS_PER_STEP = 50
"""Partitions that `/log/retain` handles in one turn of the loop."""


def operations_of(services: Services, cleaner: LogCleaner) -> Operations:
    """The operations of one broker; each request is written to the audit log, if there is one."""
    operations: Operations = {
        "/log/roll": partial(roll, services),
        "/log/retain": partial(retain, services),
        "/log/clean": partial(clean, services, cleaner),
        "/log/cleaning": partial(cleaning, services, cleaner),
        "/log/explain": partial(explain, services, cleaner),
        "/log/trust-clock": partial(trust_clock, services),
    }
    audit = services.audit
    if audit is None:
        return operations
    return {path: partial(_audited, audit, path, operation) for path, operation in operations.items()}


def _audited(
    audit: Audit, path: str, operation: Callable[[Mapping[str, str]], Answer], asked: Mapping[str, str]
) -> Answer:
    audit.note("request", "asked", Peer(Endpoint("HTTP")), api=path, resources=list(asked.values()))
    return operation(asked)


def roll(services: Services, asked: Mapping[str, str]) -> Page:
    """Begin a new segment of the partition `asked["partition"]`."""
    named = _partition_of(services, asked)
    if isinstance(named, Page):
        return named
    topic, index, partition = named
    try:
        base_offset = partition.log.segments[-1].base_offset
        partition.log.roll(services.clock.wall_ms())
    except KafkaError as error:
        return _kafka_refusal(f"{topic}-{index}", error)
    active = partition.log.segments[-1].base_offset
    if active != base_offset:
        logger.info("%s-%d: rolled by an operator, a new segment begins at offset %d", topic, index, active)
    return _answer({"partition": f"{topic}-{index}", "is_rolled": active != base_offset, "base_offset": active})


def retain(services: Services, asked: Mapping[str, str]) -> Page | Pending[Page]:
    """Apply retention to the topic `asked["topic"]`, or to all."""
    if asked.keys() - {"topic"}:
        return _refusal(HTTPStatus.BAD_REQUEST, "ask for ?topic=NAME, or for nothing")
    topics = services.catalog.topics
    name = asked.get("topic")
    if name is not None and name not in topics:
        return _refusal(HTTPStatus.NOT_FOUND, f"there is no topic {name}")
    chosen = [topics[name]] if name is not None else list(topics.values())
    return _Retaining(services, [one for topic in chosen for one in topic.partitions if one is not None]).answer


class _Retaining:
    """Retention of some partitions one after another, a limited number in each turn of the loop."""

    def __init__(self, services: Services, partitions: Sequence[Partition]) -> None:
        self.answer: Pending[Page] = Pending()
        self._services = services
        self._rest = iter(partitions)
        self._explained: list[dict[str, object]] = []
        self._go_on()

    def _go_on(self) -> None:
        for _ in range(PARTITIONS_PER_STEP):
            partition = next(self._rest, None)
            if partition is None:
                self.answer.complete(_answer({"partitions": self._explained}))
                return
            if partition.log.error is None and not self._retain(partition):
                return
        self._later()

    def _retain(self, partition: Partition) -> bool:
        """Whether it is done already; otherwise it continues with the next partitions by itself."""
        is_through = is_waiting = False

        def through(deleted: Sequence[Segment]) -> None:
            nonlocal is_through
            is_through = True
            self._explained.append(
                {
                    "partition": f"{partition.topic}-{partition.index}",
                    "deleted_segments": [segment.base_offset for segment in deleted],
                    "deleted_bytes": sum(segment.size_bytes for segment in deleted),
                    "log_start_offset": partition.log.log_start_offset,
                }
            )
            if is_waiting:
                self._later()

        retain_partition(self._services, partition, "retention, requested by an operator,", through)
        is_waiting = not is_through
        return is_through

    def _later(self) -> None:
        self._services.timers.at(self._services.clock.monotonic_ms(), self._go_on)


def clean(services: Services, cleaner: LogCleaner, asked: Mapping[str, str]) -> Page:
    """Let the cleaner clean the topic `asked["topic"]` next."""
    topic = services.catalog.topics.get(asked.get("topic", ""))
    if asked.keys() != {"topic"}:
        return _refusal(HTTPStatus.BAD_REQUEST, "ask for ?topic=NAME")
    if topic is None:
        return _refusal(HTTPStatus.NOT_FOUND, f"there is no topic {asked['topic']}")
    if "compact" not in topic.config.cleanup_policy:
        policy = ",".join(topic.config.cleanup_policy)
        return _refusal(HTTPStatus.BAD_REQUEST, f"{topic.name} is not compacted: its cleanup.policy is {policy}")
    cleaner.ask(topic.name)
    return cleaning(services, cleaner, asked)


def cleaning(services: Services, cleaner: LogCleaner, asked: Mapping[str, str]) -> Page:
    """Report the cleaning of the topic `asked["topic"]`."""
    if asked.keys() != {"topic"}:
        return _refusal(HTTPStatus.BAD_REQUEST, "ask for ?topic=NAME")
    if asked["topic"] not in services.catalog.topics:
        return _refusal(HTTPStatus.NOT_FOUND, f"there is no topic {asked['topic']}")
    found = sorted((one, what) for one, what in cleaner.asked.items() if one.topic == asked["topic"])
    return _answer({"partitions": [{"partition": str(one)} | what.field_values() for one, what in found]})


def explain(services: Services, cleaner: LogCleaner, asked: Mapping[str, str]) -> Page:
    """Report why each segment of the partition `asked["partition"]` is kept, deleted, or not yet cleaned."""
    named = _partition_of(services, asked)
    if isinstance(named, Page):
        return named
    topic, index, partition = named
    log, now_ms = partition.log, services.clock_trust.deletion_ms()
    clean_offset = services.log_manager.checkpoints.clean_offset_of(topic, index)
    state = LogToAssess.of(log, partition.last_stable_offset, clean_offset)
    try:
        found = assess(state, now_ms)
        segments = segment_status(state, found, log.high_watermark, now_ms, services.clock_trust.stamped_ms)
    except (OSError, CorruptBatch) as error:
        return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{topic}-{index}: {error}")
    return _answer(
        {
            "partition": f"{topic}-{index}",
            "now_ms": now_ms,
            "cleanup_policy": list(log.config.cleanup_policy),
            "log_start_offset": log.log_start_offset,
            "high_watermark": log.high_watermark,
            "log_end_offset": log.log_end_offset,
            "first_dirty_offset": found.first_dirty_offset,
            "first_uncleanable_offset": found.first_uncleanable_offset,
            "dirty_ratio": found.dirty_ratio,
            "is_cleaning": cleaner.is_cleaning(log),
            "uncleanable": cleaner.uncleanable.get(log),
            "is_cleaner_enabled": services.config.log_cleaner_enable,
            "segments": [asdict(segment) for segment in segments],
        }
    )


def trust_clock(services: Services, asked: Mapping[str, str]) -> Page:
    """Trust the present wall clock."""
    if asked:
        return _refusal(HTTPStatus.BAD_REQUEST, "ask for nothing: there is one clock")
    jump_ms = services.clock_trust.trust()
    return _answer({"wall_ms": services.clock.wall_ms(), "was_suspect": jump_ms != 0, "jump_ms": jump_ms})


def _partition_of(services: Services, asked: Mapping[str, str]) -> tuple[str, int, Partition] | Page:
    """The requested partition, after all gathered batches are appended; or the refusal."""
    found = parse_partition_directory(asked.get("partition", ""))
    if found is None or found.kind is not DirectoryKind.PARTITION or asked.keys() != {"partition"}:
        return _refusal(HTTPStatus.BAD_REQUEST, "ask for ?partition=TOPIC-N, such as orders-0")
    topic, index = found.topic_partition
    try:
        partition = find_partition(
            services.catalog.topics.get(topic), index, missing=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    except KafkaError as error:
        return _kafka_refusal(f"{topic}-{index}", error)
    partition.settle()
    return topic, index, partition


def _kafka_refusal(name: str, error: KafkaError) -> Page:
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return _refusal(HTTPStatus.NOT_FOUND, f"there is no partition {name}")
    return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{name}: {error.message}")


def _refusal(status: HTTPStatus, words: str) -> Page:
    return Page(status, "application/json", (json.dumps({"error": words}) + "\n").encode())


def _answer(body: object) -> Page:
    return Page(HTTPStatus.OK, "application/json", (json.dumps(body, indent=2) + "\n").encode())
