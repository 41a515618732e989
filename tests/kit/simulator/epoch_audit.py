"""Asks a started broker where leader epochs have ended, and holds the answers against the batches that it has shown.

Each batch names the epoch in which it was written. An epoch ends where the first batch of a later one begins, or at the
end of the log if there is none. The cleaner may have removed that batch, or a power cut; then the end is between what
is left of the two. A client that has fetched up to there in that epoch has a log like the broker's; one that has
fetched more in it has not, and is answered where the two part (`diverging_epoch`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from kit.simulator.epoch_ends import NO_EPOCH, NOTHING, require_code, require_end
from kit.simulator.model import Violation
from kit.simulator.readers import fetch_request

from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from ottla.protocol.records.batch import iter_batches

if TYPE_CHECKING:
    from kit.simulator.model import PartitionModel

EPOCH_VERSION: Final = 4
EPOCHS: Final = 3
"""That are asked about in each partition, beside the leader's own and those that do not exist."""

Place = tuple[str, int]
Ask = Callable[[OffsetForLeaderEpochRequest], OffsetForLeaderEpochResponse]
Fetch = Callable[[FetchRequest], FetchResponse]


class EpochBatch(NamedTuple):
    """A batch: its leader epoch, its first offset, the one after its last, and whether it has no records."""

    epoch: int
    base_offset: int
    next_offset: int
    is_empty: bool


@dataclass
class EpochLog:
    """What a partition has shown, and what is known of it."""

    start: int
    end: int
    batches: Sequence[EpochBatch]
    leader_epoch: int
    is_compacted: bool
    known: PartitionModel

    def bounds_of(self, epoch: int) -> tuple[int, int]:
        """Between which offsets an epoch that is over has ended."""
        within = max((one.next_offset for one in self._filled if one.epoch <= epoch), default=self.start)
        after = min((one.base_offset for one in self._filled if one.epoch > epoch), default=self.end)
        after = max(after, self.start)
        return within if self.has_gaps else after, after

    @property
    def has_gaps(self) -> bool:
        """Whether there may be offsets without a record."""
        return self.is_compacted or any(one.is_empty for one in self.batches)

    def may_move(self, first: int, last: int) -> bool:
        """Whether nothing is between two offsets: the start of the log has passed them, or a gap is there."""
        if self.is_compacted or last <= self.known.epochs_from:
            return True
        return not any(first < one.next_offset and one.base_offset < last for one in self._filled)

    @property
    def _filled(self) -> list[EpochBatch]:
        return [one for one in self.batches if not one.is_empty and one.next_offset > self.start]


def epoch_batches(content: bytes) -> list[EpochBatch]:
    """The batches that a fetch has answered."""
    return [
        EpochBatch(header.partition_leader_epoch, header.base_offset, header.next_offset, header.record_count == 0)
        for _, header in iter_batches(content)
    ]


def epoch_request(wanted: Mapping[Place, int], leader_epochs: Mapping[Place, int]) -> OffsetForLeaderEpochRequest:
    """Where these epochs ended, asked by a client who takes `leader_epochs` for those of the leader."""
    kind = OffsetForLeaderEpochRequest
    topics = [
        kind.OffsetForLeaderTopic(
            topic=name,
            partitions=[
                kind.OffsetForLeaderPartition(
                    partition=index, leader_epoch=epoch, current_leader_epoch=leader_epochs.get((name, index), NO_EPOCH)
                )
                for (_, index), epoch in places
            ],
        )
        for name, places in groupby(wanted.items(), lambda item: item[0][0])
    ]
    return kind(replica_id=-1, topics=topics)


def audit_epochs(ask: Ask, fetch: Fetch, logs: Mapping[Place, EpochLog], chance: random.Random) -> None:
    """Every partition, just after it was read to its end. Raises Violation."""
    if not logs:
        return
    newest = max(log.leader_epoch for log in logs.values())
    drawn = [dict.fromkeys(logs, NO_EPOCH), {place: log.leader_epoch for place, log in logs.items()}]
    drawn.append({place: log.leader_epoch + chance.randint(1, 3) for place, log in logs.items()})
    older = range(newest)
    drawn += [dict.fromkeys(logs, epoch) for epoch in chance.sample(older, min(EPOCHS, len(older)))]
    for wanted in drawn:
        claimed = {place: log.leader_epoch + chance.choice((0, 0, 0, 0, 1, -1)) for place, log in logs.items()}
        _audit(ask, logs, wanted, claimed)
    _audit_divergence(fetch, logs, chance)
    for log in logs.values():
        if log.has_gaps or log.known.epochs_from:
            log.known.epoch_ends.clear()  # those that were not asked about may have moved, too


def _audit(ask: Ask, logs: Mapping[Place, EpochLog], wanted: Mapping[Place, int], claimed: Mapping[Place, int]) -> None:
    for topic in ask(epoch_request(wanted, claimed)).topics:
        for answer in topic.partitions:
            place = topic.topic, answer.partition
            log, epoch, where = logs[place], wanted[place], f"{topic.topic}-{answer.partition}"
            if not require_code(where, claimed[place], log.leader_epoch, answer.error_code):
                continue
            found = answer.leader_epoch, answer.end_offset
            require_end(where, log.known, epoch, log.leader_epoch, found, least_end=log.end, may_move=log.may_move)
            if not 0 <= epoch < log.leader_epoch:
                continue
            least, most = log.bounds_of(epoch)
            if not least <= answer.end_offset <= max(most, log.known.epochs_from):
                raise Violation(f"{where}: epoch {epoch} ends at {found}; by its batches between {least} and {most}")


def _audit_divergence(fetch: Fetch, logs: Mapping[Place, EpochLog], chance: random.Random) -> None:
    """Clients that have fetched up to a batch in its epoch, and some beyond the end of it."""
    wanted, fetched = {}, {}
    for place, log in logs.items():
        batches = [one for one in log.batches if one.next_offset >= log.start]
        if batches and not log.has_gaps and not log.known.epochs_from:
            fetched[place] = batch = chance.choice(batches)
            wanted[place] = batch.next_offset + chance.choice((0, 0, 1))
    request = fetch_request(wanted)
    for topic in request.topics:
        for asked in topic.partitions:
            asked.last_fetched_epoch = fetched[topic.topic, asked.partition].epoch
    for of_topic in fetch(request).responses if wanted else ():
        for answer in of_topic.partitions:
            place = of_topic.topic, answer.partition_index
            log, epoch, diverging = logs[place], fetched[place].epoch, answer.diverging_epoch
            end = log.end if epoch == log.leader_epoch else log.bounds_of(epoch)[1]
            found = NOTHING if diverging is None else (diverging.epoch, diverging.end_offset)
            expected = NOTHING if wanted[place] <= end else (epoch, end)
            if found != expected:
                raise Violation(
                    f"{place}: a client at {wanted[place]} that has fetched epoch {epoch} is answered {found}, not"
                    f" {expected}"
                )
