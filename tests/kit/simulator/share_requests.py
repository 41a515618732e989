"""The requests of members of share groups, right ones and wrong ones."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.protocol.api.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.api.share_fetch import AcknowledgeType, AcquireMode, ShareFetchRequest

if TYPE_CHECKING:
    from kit.simulator.share_model import Acknowledgement

FETCH_VERSION: Final = 2
ACKNOWLEDGE_VERSION: Final = 2
HEARTBEAT_VERSION: Final = 1
NO_TYPE: Final = 9

Batch = tuple[int, int, list[int]]
"""First offset, last offset, types."""
Place = tuple[UUID, int]


@dataclass
class Limits:
    """What a fetch may bring."""

    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 1 << 20
    max_records: int = 500
    batch_size: int = 500
    is_strict: bool = False


def batches_of(chance: random.Random, sent: Acknowledgement | None) -> list[Batch]:
    """What is said of the offsets, as batches: neighbours together, with a type for each or one for all."""
    if sent is None:
        return []
    batches: list[Batch] = []
    splits = chance.random() < 0.3
    for offset, kind, _ in sent.said:
        is_next = bool(batches) and batches[-1][1] + 1 == offset
        if not is_next or (splits and chance.random() < 0.4):
            batches.append((offset, offset, [int(kind)]))
        else:
            first, _, kinds = batches[-1]
            batches[-1] = (first, offset, [*kinds, int(kind)])
    batches = [
        (first, last, kinds[:1] if len(set(kinds)) == 1 and chance.random() < 0.7 else kinds)
        for first, last, kinds in batches
    ]
    return _spoilt(chance, batches) if sent.is_wrong else batches


def _spoilt(chance: random.Random, batches: list[Batch]) -> list[Batch]:
    """One of them is wrong, so that all have to be refused."""
    number = chance.randrange(len(batches))
    first, last, kinds = batches[number]
    what = chance.randrange(5)
    if what == 0:
        batches[number] = (first, last, [NO_TYPE])
    elif what == 1:
        batches[number] = (first, last, [*kinds, *kinds, int(AcknowledgeType.ACCEPT)] * (last - first + 2))
    elif what == 2:
        batches[number] = (last + 1, last, kinds)
    elif what == 3:
        batches[number] = (first, last, [])
    else:
        batches.append((last + 100_000, last + 100_001, [int(AcknowledgeType.ACCEPT)]))
    return batches


def fetch_request(
    group: str,
    member_id: str,
    epoch: int,
    limits: Limits,
    wanted: Mapping[Place, Sequence[Batch]],
    forgotten: Sequence[Place],
) -> ShareFetchRequest:
    """A ShareFetch."""
    kind = ShareFetchRequest
    return kind(
        group_id=group,
        member_id=member_id,
        share_session_epoch=epoch,
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        max_records=limits.max_records,
        batch_size=limits.batch_size,
        share_acquire_mode=AcquireMode.RECORD_LIMIT if limits.is_strict else AcquireMode.BATCH_OPTIMIZED,
        topics=[
            kind.FetchTopic(
                topic_id=topic_id,
                partitions=[
                    kind.FetchPartition(
                        partition_index=index,
                        acknowledgement_batches=[
                            kind.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)
                            for first, last, kinds in batches
                        ],
                    )
                    for (_, index), batches in places
                ],
            )
            for topic_id, places in groupby(wanted.items(), lambda item: item[0][0])
        ],
        forgotten_topics_data=[
            kind.ForgottenTopic(topic_id=topic_id, partitions=[index for _, index in places])
            for topic_id, places in groupby(sorted(forgotten), lambda place: place[0])
        ],
    )


def acknowledge_request(
    group: str, member_id: str, epoch: int, said: Mapping[Place, Sequence[Batch]], *, is_renew_ack: bool
) -> ShareAcknowledgeRequest:
    """A ShareAcknowledge."""
    kind = ShareAcknowledgeRequest
    return kind(
        group_id=group,
        member_id=member_id,
        share_session_epoch=epoch,
        is_renew_ack=is_renew_ack,
        topics=[
            kind.AcknowledgeTopic(
                topic_id=topic_id,
                partitions=[
                    kind.AcknowledgePartition(
                        partition_index=index,
                        acknowledgement_batches=[
                            kind.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)
                            for first, last, kinds in batches
                        ],
                    )
                    for (_, index), batches in places
                ],
            )
            for topic_id, places in groupby(sorted(said.items(), key=lambda item: item[0]), lambda item: item[0][0])
        ],
    )
