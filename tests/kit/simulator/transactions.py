"""What simulated clients know of their transactions, and what therefore must be true of them.

A transaction is *decided* once somebody has learnt its end: by the answer to EndTxn, by reading a record of it as a
committed one, or by an answer that rules a commit out. From then on the other end is a broken promise, for all of its
records and offsets at once, whatever crashes in between. Until then both are possible, if a commit was ever asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from kit.simulator.commits import CommitModel, Place
from kit.simulator.model import Model, Stored, Violation
from kit.simulator.topic_model import TopicModel

PartitionPlace = tuple[str, UUID, int]
"""(topic, its id, partition)"""


@dataclass(eq=False)
class TransactionModel:
    """One transaction.

    Attributes:
        begun_ms: the monotonic time before its first request.
        records: values by offset of what was acknowledged, by partition.
        places: partitions to which it may have written.
        offsets: what it commits in the name of a group, and what is known of that.
    """

    transactional_id: str
    producer: tuple[int, int]
    timeout_ms: int
    begun_ms: float
    records: dict[PartitionPlace, dict[int, bytes]] = field(default_factory=dict)
    offsets: dict[Place, tuple[int, CommitModel]] = field(default_factory=dict)
    places: set[PartitionPlace] = field(default_factory=set)
    may_commit: bool = False
    """Whether a commit was asked for."""
    must_commit: bool = False
    must_abort: bool = False
    is_over: bool = False
    """Whether a client has learnt that it is over."""
    may_lack_markers: bool = False
    """Whether its end was answered so late that its markers may still be missing."""
    over_number: int = 0
    """As which one its markers are visible: those of a lower number were visible before."""

    def __str__(self) -> str:
        return f"transaction of {self.transactional_id} by {self.producer}"

    def note_committed(self, why: str) -> None:
        """It is committed, as somebody has learnt."""
        if self.must_abort:
            raise Violation(f"{self}: {why}, and it was aborted")
        if not self.may_commit:
            raise Violation(f"{self}: {why}, and nobody has asked for its commit")
        self.must_commit = True

    def note_aborted(self, why: str) -> None:
        """It is aborted, as somebody has learnt."""
        if self.must_commit:
            raise Violation(f"{self}: {why}, and it was committed")
        self.must_abort = True


class Transactions:
    """All transactions that clients have begun, beside the model of everything else."""

    def __init__(self, model: Model) -> None:
        self.model = model
        model.is_uncommitted, model.is_in_doubt = self.is_uncommitted, self.is_in_doubt
        model.on_offset_shown = self.offset_shown
        self.by_value: dict[bytes, TransactionModel] = {}
        self.by_offset: dict[tuple[Place, int], TransactionModel] = {}
        self._pending: dict[Place, dict[int, TransactionModel]] = {}
        """Offsets that a transaction has committed, as was acknowledged; they count when it ends."""
        self.inits_sent: dict[str, int] = {}
        """How often a producer of each transactional id has asked for an epoch."""
        self.epochs: dict[int, int] = {}
        """The newest epoch of each producer id that a client has received."""
        self.exempt: set[tuple[TransactionModel, UUID, int]] = set()
        """Transactions whose markers a power cut may have taken from a partition that does not sync."""
        self.has_lost_its_end = False
        """Whether a power cut may have taken transactional ids from the coordinator."""
        self.over_count = 0
        self._all: list[TransactionModel] = []
        self._newest_offsets: dict[Place, int] = {}
        self._open: dict[str, list[TransactionModel]] = {}
        """By transactional id, those of which nobody knows that their markers are visible."""
        self.spoilt: set[tuple[UUID, int]] = set()
        """Partitions of which a person has taken something away: what was there is promised to nobody."""

    def begin(
        self, transactional_id: str, producer: tuple[int, int], timeout_ms: int, now_ms: float
    ) -> TransactionModel:
        """One more transaction."""
        begun = TransactionModel(transactional_id, producer, timeout_ms, now_ms)
        self._open.setdefault(transactional_id, []).append(begun)
        self._all.append(begun)
        return begun

    def begun_anew(self, transactional_id: str) -> None:
        """A producer was given an epoch: what others of its transactional id had open is over, and was aborted unless
        its commit was asked for.
        """
        for one in list(self._open.get(transactional_id, ())):
            self.over(one)
            if not one.may_commit:
                one.note_aborted("another producer has begun")

    def over_late(self, transaction: TransactionModel) -> None:
        """Its end was acknowledged after `END_WAIT_MS`. The coordinator gives such an answer where a partition takes no
        marker, because its disk is full: the end is decided, readers may be held up until there is room. What is
        promised then is that the next transaction waits for the markers (`begun_next`, `begun_anew`).
        """
        transaction.is_over = transaction.may_lack_markers = True

    def begun_next(self, transaction: TransactionModel) -> None:
        """A request of this transaction was accepted: the markers of those before it, which were acknowledged, are
        visible.
        """
        for one in list(self._open.get(transaction.transactional_id, ())):
            if one.may_lack_markers and one is not transaction:
                self.over(one)

    def over(self, transaction: TransactionModel) -> None:
        """Its end was acknowledged, and its markers are visible."""
        self.over_count += 1
        transaction.is_over, transaction.over_number = True, self.over_count
        transaction.may_lack_markers = False
        self._open[transaction.transactional_id] = [
            one for one in self._open.get(transaction.transactional_id, []) if one is not transaction
        ]

    def next_offset(self, place: Place) -> tuple[int, CommitModel]:
        """An offset to be committed, larger than all before."""
        known = self.model.commits.setdefault(place, CommitModel())
        offset = self._newest_offsets.get(place, 0) + 1
        self._newest_offsets[place] = offset
        return offset, known

    def note_epoch(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        """A producer was given an epoch: a newer one than anybody before."""
        if epoch <= self.epochs.get(producer_id, -1):
            raise Violation(f"{transactional_id}: epoch {epoch} of producer {producer_id} was given out twice")
        if producer_id not in self.epochs:
            self.model.note_producer_id(producer_id)
        self.epochs[producer_id] = epoch

    def commit_asked(self, transaction: TransactionModel) -> None:
        """From now on it may be committed."""
        transaction.may_commit = True
        for offset, known in transaction.offsets.values():
            known.sent = max(known.sent, offset)

    def committed(self, transaction: TransactionModel, why: str) -> None:
        """Somebody has learnt that it is committed, and so are its offsets."""
        was_known = transaction.must_commit
        transaction.note_committed(why)
        if not was_known:
            for offset, known in transaction.offsets.values():
                known.note_committed(offset)

    def offset_shown(self, place: Place, offset: int) -> None:
        """A group's offset was shown as a committed one."""
        transaction = self.by_offset.get((place, offset))
        if transaction is not None:
            self.committed(transaction, f"offset {offset} of {place} is committed")

    def offsets_pending(self, transaction: TransactionModel) -> None:
        """The offsets of a transaction are acknowledged."""
        for place, (offset, _) in transaction.offsets.items():
            self._pending.setdefault(place, {})[offset] = transaction

    def stable_offset_check(self, place: Place) -> Callable[[Place, int], None]:
        """What to do with an answer to who asks for a stable offset now: no transaction of before may change it, so
        those with a larger offset were aborted, unless the offset went with its topic.
        """
        pending = dict(self._pending.get(place, {}))

        def check(_: Place, stable: int) -> None:
            for offset, transaction in pending.items():
                if offset > stable and not self._is_offset_gone(place, transaction):
                    transaction.note_aborted(f"{stable} is the stable offset of {place}, without its {offset}")

        return check

    def _is_offset_gone(self, place: Place, transaction: TransactionModel) -> bool:
        """Whether the topic was deleted, or may be, since a transaction has committed an offset of it."""
        _, topic, _ = place
        _, known = transaction.offsets.get(place, (0, None))
        return topic in self.model.deleting or known is not self.model.commits.get(place)

    def transaction_of(self, record: Stored) -> TransactionModel | None:
        """The transaction that a record is of, None of a plain one."""
        return None if record.value is None else self.by_value.get(record.value)

    def learn(self, topic: TopicModel, index: int, shown: Mapping[int, Stored], hidden: Mapping[int, Stored]) -> None:
        """Below the last stable offset of a partition a reader of committed records sees these, and not those."""
        name = f"{topic.name}-{index}"
        for offset, record in shown.items():
            one = self.transaction_of(record)
            if one is not None and not (self.has_lost_its_end and (one, topic.id, index) in self.exempt):
                self.committed(one, f"{name} shows offset {offset} as committed")
        for offset, record in hidden.items():
            one = self.transaction_of(record)
            if one is None:
                raise Violation(f"{name} offset {offset} is no part of a transaction, and is called aborted")
            if (one, topic.id, index) not in self.exempt:
                one.note_aborted(f"{name} hides offset {offset} as aborted")

    def require_shown(
        self, topic: TopicModel, index: int, shown: Mapping[int, Stored], offsets: range, *, power_cut: bool = False
    ) -> None:
        """What is acknowledged and must be committed is there, for readers of committed records, too."""
        known = topic.partitions[index]
        for records in (known.promised, *([] if power_cut else [known.written])):
            for offset, record in records.items():
                if offset not in offsets or offset in shown or offset in known.gone:
                    continue
                if self._is_committed(topic, index, record):
                    one = self.transaction_of(record)
                    raise Violation(
                        f"{topic.name}-{index} offset {offset}: {record} is committed and not shown ({one})"
                    )

    def require_newest(
        self,
        topic: TopicModel,
        index: int,
        shown: Mapping[int, Stored],
        offsets: range,
        *,
        decided: Mapping[int, Stored],
        power_cut: bool,
    ) -> None:
        """The same of a compacted log: a newer committed record of the key may stand for one, an aborted one not.

        `decided`: those of which the log has a marker, also where a reader does not get to them.
        """
        known = topic.partitions[index]
        must = {
            offset: record
            for records in (known.promised, *([] if power_cut else [known.written]))
            for offset, record in records.items()
            if offset in offsets and self._is_committed(topic, index, record)
        }
        newest = {record.key: offset for offset, record in sorted((dict(decided) | dict(shown) | must).items())}
        for offset, record in must.items():
            may_be_cleaned = (
                newest[record.key] > offset or record.value is None or known.may_be_deleted(offset, record.key)
            )
            if offset not in shown and not may_be_cleaned:
                raise Violation(f"{topic.name}-{index} offset {offset}: {record} is committed and not shown")

    def _is_committed(self, topic: TopicModel, index: int, record: Stored) -> bool:
        one = self.transaction_of(record)
        return one is None or (one.must_commit and (one, topic.id, index) not in self.exempt)

    def is_uncommitted(self, record: Stored) -> bool:
        """Whether a record is of a transaction that nobody knows to be committed: nothing may be cleaned for it."""
        one = self.transaction_of(record)
        return one is not None and not one.must_commit

    def is_in_doubt(self, record: Stored, topic: TopicModel, index: int) -> bool:
        """Whether a power cut may have taken the end of its transaction from this partition, but not the record."""
        return (self.transaction_of(record), topic.id, index) in self.exempt

    def exempt_all(self, topic: TopicModel, index: int) -> None:
        """A power cut may have taken markers away, where they were not synced: who sees what is promised to nobody."""
        place = (topic.name, topic.id, index)
        self.exempt.update((one, topic.id, index) for one in self._all if place in one.places)

    def note_power_cut(self) -> None:
        """The coordinator has lost the end of its own log, too, where the broker's promise is `page-cache`
        (`page_cache_worlds.py`): of the transactions of before nothing is known beyond what partitions that sync show
        of those whose end was acknowledged with its markers, and epochs may be given out again. Offsets are for the
        model.
        """
        self.has_lost_its_end = True
        topics = {topic.id: topic for topic in self.model.topics.values()}
        for one in self._all:
            for _, topic_id, index in one.places:
                is_known = one.is_over and not one.may_lack_markers
                if not is_known or topic_id not in topics or not topics[topic_id].always_syncs:
                    self.exempt.add((one, topic_id, index))
            for offset, known in one.offsets.values():
                known.sent = max(known.sent, offset)
            one.offsets.clear()
        self.by_offset.clear()
        self.epochs = dict.fromkeys(self.epochs, -1)
        self._open.clear()
        self._pending.clear()

    def may_be_forgotten(self, topic: TopicModel, index: int, stable: int) -> bool:
        """Whether what holds readers up there may be known to no coordinator any more, after such a power cut. It is
        for an administrator then (`ottla transactions find-hanging`).
        """
        known = topic.partitions[index]
        record = known.promised.get(stable)
        one = None if record is None else self.transaction_of(record)
        return self.has_lost_its_end and (one is None or (one, topic.id, index) in self.exempt)

    def may_seem_open(self, transactional_id: str, producer: tuple[int, int]) -> bool:
        """Whether a broker may take a transaction of this producer for an open one though its end was acknowledged: a
        power cut may have kept its records and lost a marker, where they were not synced. Then it ends by its timeout,
        which fences the producer.
        """
        return any(
            one.is_over and (one.transactional_id, one.producer) == (transactional_id, producer)
            for one, _, _ in self.exempt
        )

    def require_over(self, topic: TopicModel, index: int, stable: int, over_count: int) -> None:
        """Where the last stable offset stays, a transaction begins that was not over when a reader asked."""
        known = topic.partitions[index]
        record = known.promised.get(stable) or known.written.get(stable)
        one = None if record is None else self.transaction_of(record)
        if one is None or (one, topic.id, index) in self.exempt:
            return
        if one.is_over and not one.may_lack_markers and one.over_number <= over_count:
            raise Violation(f"{topic.name}-{index}: readers are held up at {stable} by a {one}, which was over")
