"""What the clients of a simulated broker were answered, and what therefore must be true of it.

The model knows nothing of logs or files. Two kinds of loss are distinguished: the *death of the process* keeps what was
written, a *power cut* keeps what was synced. Per partition it remembers what survives which, and after every restart
an audit holds that against everything that the broker shows. What is there after a restart is durable from then on,
because recovery writes and syncs what it keeps. What a broker promises with `ottla.acks.all=page-cache` is said in
`page_cache_worlds.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from kit.simulator.commits import CommitModel, Place
from kit.simulator.topic_model import TopicModel


class Violation(AssertionError):
    """The broker broke a promise; the message says which."""


class Loss(Enum):
    """How a life of the broker ended."""

    STOP = "clean stop"
    KILL = "death of the process"
    POWER = "power cut"


class Stored(NamedTuple):
    """A record as a reader finds it."""

    key: bytes | None
    value: bytes | None


class Shown(NamedTuple):
    """Everything that a partition shows: its bounds, and each record by its offset."""

    start: int
    end: int
    records: dict[int, Stored]
    leader_epoch: int
    size_bytes: int
    markers: frozenset[int] = frozenset()
    """Offsets of the ends of transactions."""
    stamps_ms: Mapping[int, int] = MappingProxyType({})
    """The timestamp of each record, and of each of these ends."""


@dataclass
class PartitionModel:
    """What is known of one partition."""

    promised: dict[int, Stored] = field(default_factory=dict)
    """Survives everything: acknowledged by acks=all in `sync`, seen by a reader in `sync`, or found after a restart."""
    written: dict[int, Stored] = field(default_factory=dict)
    """Survives the death of the process: acks=1, or acknowledged in `page-cache`."""
    once: dict[bytes, tuple[object, int]] = field(default_factory=dict)
    """Values of idempotent producers, with the producer and the sequence: stored at most once, and in order."""
    sent: set[bytes] = field(default_factory=set)
    tombstones: set[bytes] = field(default_factory=set)
    """Keys of which a record without a value was sent."""
    doubtful: Counter[bytes] = field(default_factory=Counter)
    """How many of those were sent in this life and are not acknowledged: any of them may be stored, or was."""
    stamps_ms: dict[int, int] = field(default_factory=dict)
    """The timestamps of records that were acknowledged, or found after a restart."""
    promised_end: int = 0
    """A high watermark that a client has received, in `sync`."""
    shown_end: int = 0
    """The same in `page-cache`, where a power cut may take it back."""
    start: int = 0
    """Records below were deleted by a client, and the broker acknowledged that."""
    start_asked: int = 0
    """The largest offset up to which a deletion was asked for."""
    retained_from: int = 0
    """Where retention had moved the start, as the last restart has shown. It may have been at work: a power cut may
    bring back the names of the last segments that it has removed."""
    leader_epoch: int = 0
    epoch_ends: dict[int, int] = field(default_factory=dict)
    """Where leader epochs that are over have ended, as clients were answered."""
    epochs_from: int = 0
    """Epochs may be known from here on only: the log may have started here before a crash took that back, and the file
    of epochs may have been written meanwhile. The same happens to Apache Kafka.
    """
    was_audited: bool = False
    """Whether `leader_epoch` is what an audit has seen."""
    found: range = range(0)
    """Offsets from the start to the end of the log that the last restart has left."""
    newest_found: dict[bytes | None, int] = field(default_factory=dict)
    """Of each key, the offset of the newest record that was there then."""
    ever_found: set[int] = field(default_factory=set)
    """Offsets that had a record after some restart; they are not given out again."""

    gone: set[int] = field(default_factory=set)
    """Offsets that a start found missing at the end of the log: nothing is stored there any more."""
    may_have_gap: bool = False
    """Whether the next start may find the log shorter than it had been, or believe so: then it leaves a gap behind."""
    has_lost_end: bool = False
    """Whether it must, and begin a new leader epoch: a consumer may have read what is gone."""

    @property
    def latest_start(self) -> int:
        """The start of the log is not beyond, but for what retention does from now on."""
        return max(self.start, self.start_asked, self.retained_from)

    def lose_from(self, first_lost: int, next_offset: int) -> None:
        """The records from `first_lost` on were taken from the disk; none of their offsets is given out again.

        Where all of them had been deleted the log may begin at its end without a trace: nobody can miss them.
        """
        self.promised_end = max([self.promised_end, next_offset])
        for known in (self.promised, self.written):
            for offset in [offset for offset in known if offset >= first_lost]:
                del known[offset]
        self.epoch_ends.clear()
        self.may_have_gap = True
        self.has_lost_end = next_offset > self.latest_start

    def note(self, offset: int, record: Stored, *, survives_power: bool) -> None:
        """A record was acknowledged at `offset`."""
        if offset in self.gone:
            raise Violation(f"offset {offset} was given out again, it had been lost")
        # Below the end that the last restart has left it repeats what is there, or what the cleaner has taken.
        if offset in self.found and offset not in self.ever_found and self.newest_found.get(record.key, -1) < offset:
            raise Violation(f"offset {offset}: {record} was acknowledged, and the last start has not found it")
        for known in (self.promised, self.written):
            if offset in known and known[offset] != record:
                raise Violation(f"offset {offset} was acknowledged twice: {known[offset]} and {record}")
        (self.promised if survives_power else self.written)[offset] = record
        if record.value is None and self.doubtful[record.key or b""] > 0:
            self.doubtful[record.key or b""] -= 1

    def note_timestamp(self, offset: int, timestamp_ms: int | None) -> None:
        """The record at `offset` has this timestamp; None: it is not known."""
        if timestamp_ms is not None:
            self.stamps_ms[offset] = timestamp_ms

    def may_be_deleted(self, offset: int, key: bytes | None) -> bool:
        """Whether a tombstone of `key` may have been stored behind `offset` that the cleaner has taken, too, by now."""
        return self.doubtful[key or b""] > 0 or any(
            at > offset and record.key == key and record.value is None for at, record in self.written.items()
        )


class Model:
    """Everything that clients know."""

    def __init__(self, acks_all: str = "sync") -> None:
        self.acks_all = acks_all
        """The broker's `ottla.acks.all`: the promise of topics that set none, and of committed offsets and groups."""
        self.topics: dict[str, TopicModel] = {}
        self.creating: dict[str, tuple[int, dict[str, str]]] = {}
        self.deleting: set[str] = set()
        self.commits: dict[Place, CommitModel] = {}
        self._late_commits: dict[Place, int] = {}
        """Of topics that are gone, the largest offset of a commit that was not answered then: it may be under way still
        and count for a new topic of the name."""
        self.producer_ids: set[int] = set()
        self.generations: dict[tuple[str, str], int] = {}
        """(group, member) -> generation whose assignment the member was given."""
        self.newest_generation: dict[str, int] = {}
        """Group -> the newest generation that a member has received."""
        self.is_uncommitted: Callable[[Stored], bool] = lambda _: False
        """Whether a record is of a transaction that nobody knows to be committed."""
        self.is_in_doubt: Callable[[Stored, TopicModel, int], bool] = lambda *_: False
        """Whether a power cut may have taken the end of a record's transaction from this partition."""
        self.on_offset_shown: Callable[[Place, int], None] = lambda *_: None
        """Called with each committed offset that a client is shown."""
        self.may_wait = False
        """Whether what a client has sent may wait before the broker reads it."""
        self._former: dict[tuple[str, int], PartitionModel] = {}
        """The last partition of this name that was deleted."""
        self.has_flipped_bit = False
        """Whether a bit of a checkpoint has flipped since the last audit."""
        self.was_repaired = False
        """Whether `ottla log verify --repair` has run: it removes nothing, and keeps what is left of deletions."""
        self.was_unclean = False
        """Whether the last life that served somebody ended without a stop in good order: leader epochs must grow."""

    def note_producer_id(self, producer_id: int) -> None:
        """A producer id was handed out."""
        if producer_id in self.producer_ids:
            raise Violation(f"producer id {producer_id} was handed out twice")
        self.producer_ids.add(producer_id)

    def note_generation(self, group: str, generation: int) -> None:
        """A member has received a generation."""
        self.newest_generation[group] = max(generation, self.newest_generation.get(group, -1))

    def note_topic_gone(self, name: str) -> None:
        """A topic was deleted: nothing of it is promised any more, its committed offsets neither."""
        gone = self.topics.pop(name, None)
        self.deleting.discard(name)
        if gone is not None and self.may_wait:
            self._former.update(((name, index), one) for index, one in enumerate(gone.partitions))
        for place in [place for place in self.commits if place[1] == name]:
            known = self.commits.pop(place)
            if self.may_wait and known.sent > known.promised:
                self._late_commits[place] = max(known.sent, self._late_commits.get(place, -1))

    def note_power_cut(self) -> None:
        """What groups have is as durable as the broker's `ottla.acks.all` says: in `page-cache` it may go back to what
        the last restart has found, and members may be forgotten. Producer ids, topics and settings are synced always.
        """
        if self.acks_all == "sync":
            return
        for known in self.commits.values():
            known.note_power_cut()
        self.generations.clear()
        self.newest_generation.clear()

    # -- after a restart --------------------------------------------------------------------------------------------

    def audit_topics(self, found: dict[str, tuple[UUID, int, dict[str, str]]]) -> None:
        """`found`: id, partition count and settings by name. What was in doubt is settled by what is there."""
        for name, topic in list(self.topics.items()):
            if name not in found:
                if name not in self.deleting:
                    raise Violation(f"topic {name} is gone, and nobody deleted it")
                self.note_topic_gone(name)
                continue
            topic_id, count, settings = found[name]
            if topic_id != topic.id and name in self.deleting and name in self.creating:
                self.note_topic_gone(name)
                continue
            if topic_id != topic.id:
                raise Violation(f"topic {name} has another id")
            if not len(topic.partitions) <= count <= max(len(topic.partitions), topic.counts_asked):
                raise Violation(f"topic {name} has {count} partitions, {len(topic.partitions)} were acknowledged")
            topic.partitions += [self._found_partition(name, index) for index in range(len(topic.partitions), count)]
            if settings != topic.settings and settings not in topic.settings_asked:
                raise Violation(f"topic {name} has {settings}, acknowledged was {topic.settings}")
            topic.note_settings(settings)
            topic.counts_asked, topic.is_unsettled = count, False  # a start syncs what it finds
        for name, (topic_id, count, settings) in found.items():
            if name in self.topics:
                continue
            if name not in self.creating:
                raise Violation(f"topic {name} is there, and nobody created it (or it was deleted)")
            partitions = [self._found_partition(name, index) for index in range(count)]
            self.topics[name] = TopicModel(name, topic_id, settings, partitions, count, acks_all=self.acks_all)
        self.creating.clear()
        self.deleting.clear()
        self.has_flipped_bit = False

    def new_partition(self, name: str, index: int) -> PartitionModel:
        """One that was created. What was meant for one of its name, and waits because a client is over a quota, may
        still come.
        """
        former = self._former.get((name, index))
        if former is None:
            return PartitionModel()
        return PartitionModel(sent=former.sent, tombstones=former.tombstones, doubtful=former.doubtful)

    def _found_partition(self, name: str, index: int) -> PartitionModel:
        """One whose creation was not answered, and which is there: a row of it may have lost a bit, too."""
        found = self.new_partition(name, index)
        found.may_have_gap = self.has_flipped_bit
        return found

    def audit_partition(self, topic: TopicModel, index: int, shown: Shown, loss: Loss | None, now_ms: int) -> None:
        """Hold what a partition shows against what is known; `loss` is None in the middle of a life."""
        known, place = topic.partitions[index], f"{topic.name}-{index}"
        self._audit_bounds(topic, known, shown, place, loss)
        if shown.start > known.latest_start:
            self._audit_retention(topic, known, shown, place, loss, now_ms)
        must = dict(known.promised)
        # A power cut leaves a beginning of what was written: all that was acknowledged before the last record there is.
        kept = max(shown.records, default=-1) if loss is Loss.POWER else max(known.written, default=-1)
        must.update((offset, record) for offset, record in known.written.items() if offset <= kept)
        if loss is not None:
            self._audit_contents(topic, index, shown, must)
        newest: dict[object, int] = {}
        for offset, record in shown.records.items():
            value = record.value
            if value is None:
                if record.key not in known.tombstones:
                    raise Violation(f"{place} offset {offset}: a tombstone that was never sent")
                continue
            if value not in known.sent:
                raise Violation(f"{place} offset {offset}: something that was never sent")
            if value in known.once:
                producer, sequence = known.once[value]
                if sequence <= newest.get(producer, -1):
                    raise Violation(f"{place} offset {offset}: an idempotent record is stored twice or out of order")
                newest[producer] = sequence
        if loss is not None:
            self._settle(topic, known, shown)

    def _audit_bounds(
        self, topic: TopicModel, known: PartitionModel, shown: Shown, place: str, loss: Loss | None
    ) -> None:
        if shown.end < known.promised_end:
            raise Violation(f"{place} ends at {shown.end}; {known.promised_end} had been shown")
        if loss is not Loss.POWER and shown.end < known.shown_end:
            raise Violation(f"{place} ends at {shown.end}; {known.shown_end} had been shown, and no power was cut")
        if shown.start < known.start:
            raise Violation(f"{place} starts at {shown.start}; records below {known.start} had been deleted")
        if loss is not Loss.POWER and shown.start < known.retained_from:
            raise Violation(f"{place} starts at {shown.start}; it was {known.retained_from}, and no power was cut")
        if shown.start > known.latest_start and not topic.expires:
            raise Violation(f"{place} starts at {shown.start}; nobody deleted beyond {known.latest_start}")
        least_epoch = known.leader_epoch + ((self.was_unclean or known.has_lost_end) and known.was_audited)
        if shown.leader_epoch < least_epoch:
            raise Violation(f"{place} has leader epoch {shown.leader_epoch}, not {least_epoch} or more")
        if not topic.is_compacted:
            missing = set(range(shown.start, shown.end)) - shown.records.keys() - shown.markers - known.gone
            # What was shown in `page-cache` may be gone with the power; its offsets are not given out again.
            may_be = known.may_have_gap or (loss is Loss.POWER and topic.may_skip_offsets)
            end = shown.end
            while end - 1 in shown.markers:  # of transactions that the start has ended
                end -= 1
            if missing and (not may_be or missing != set(range(min(missing), end)) - known.gone):
                raise Violation(f"{place}: offsets have gaps between {shown.start} and {shown.end}")
            known.gone |= missing
        elif known.gone & shown.records.keys():
            raise Violation(f"{place}: lost offsets have records again")
        if list(shown.records) != sorted(shown.records):
            raise Violation(f"{place}: offsets are out of order")

    @staticmethod
    def _audit_retention(
        topic: TopicModel, known: PartitionModel, shown: Shown, place: str, loss: Loss | None, now_ms: int
    ) -> None:
        """Retention has taken records away: not more than its rule says. After a power cut the end may be gone, too."""
        if topic.is_compacted or topic.former:
            return
        least_bytes = int(topic.settings.get("retention.bytes", 0))
        if least_bytes and loss is not Loss.POWER and shown.size_bytes < least_bytes:
            raise Violation(f"{place}: retention has left {shown.size_bytes} bytes, not {least_bytes} or more")
        if "retention.ms" not in topic.settings:
            return
        oldest_ms = now_ms - int(topic.settings["retention.ms"])
        for offset, stamp_ms in known.stamps_ms.items():
            if known.start <= offset < shown.start and stamp_ms > oldest_ms:
                raise Violation(f"{place}: retention took offset {offset}, {now_ms - stamp_ms} ms old")

    def _audit_contents(self, topic: TopicModel, index: int, shown: Shown, must: dict[int, Stored]) -> None:
        """What must be there is. Where it is in doubt which of two records has superseded the other, either may be
        missing here; what readers of committed records get says which (`Transactions.require_newest`).
        """
        known = topic.partitions[index]
        newest = {
            record.key: offset
            for offset, record in sorted((shown.records | must).items())
            if not self.is_uncommitted(record) or self.is_in_doubt(record, topic, index)
        }
        for offset, record in must.items():
            if offset < shown.start:
                continue
            found = shown.records.get(offset)
            if found == record:
                continue
            # A later record of the key may stand for it, or its tombstone has served its time.
            may_be_cleaned = topic.is_compacted and (
                self.is_uncommitted(record)
                or self.is_in_doubt(record, topic, index)
                or newest[record.key] > offset
                or record.value is None
                or known.may_be_deleted(offset, record.key)
            )
            if found is None and may_be_cleaned:
                continue
            where = f"{topic.name}-{index} offset {offset}"
            raise Violation(f"{where}: {record} was acknowledged, {found} is there")

    @staticmethod
    def _settle(topic: TopicModel, known: PartitionModel, shown: Shown) -> None:
        """A restart has decided what was in doubt."""
        known.promised = dict(shown.records)
        known.stamps_ms = {offset: stamp for offset, stamp in shown.stamps_ms.items() if offset in shown.records}
        known.written = {}
        known.doubtful.clear()
        if shown.start <= max(known.start, known.start_asked):  # else retention has moved it
            known.start = shown.start
        known.start_asked = known.start
        known.retained_from = shown.start
        known.leader_epoch = shown.leader_epoch
        known.was_audited = True
        known.may_have_gap = known.has_lost_end = False
        known.found = range(shown.start, shown.end)
        known.newest_found = {record.key: offset for offset, record in shown.records.items()}
        known.ever_found |= shown.records.keys()
        known.promised_end = shown.end if topic.syncs else 0
        known.shown_end = shown.end

    def note_fetched_offset(self, place: Place, offset: int, promised: int | None = None) -> None:
        """OffsetFetch has shown `offset` (-1: none) for a (group, topic, partition); `promised` was when it was sent: a
        commit may have been answered since, on another connection.
        """
        self.on_offset_shown(place, offset)
        known = self.commits.get(place)
        if known is None:
            return
        least = known.promised if promised is None else min(promised, known.promised)
        if offset < least:
            raise Violation(f"committed offset of {place} went back from {least} to {offset}")
        if offset > max(known.sent, self._late_commits.get(place, -1)):
            raise Violation(f"committed offset of {place} is {offset}, nothing above {known.sent} was sent")
        if 0 <= offset <= known.deleted:
            raise Violation(f"committed offset of {place} is {offset}, all up to {known.deleted} was deleted")
        known.note_committed(offset)
