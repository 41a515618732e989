"""What simulated clients know of share groups, and what therefore must be true of them (KIP-932).

A record is *done* once a member was answered that it is acknowledged, rejected or no record at all: it is not delivered
again, whatever crashes. All others are delivered until they are done, or were delivered as often as the group allows.
Each delivery has the next number (`delivery_count`), and while its lock lasts nobody else is given the record.

What a crash takes back: deliveries of which nothing was written. The number of a delivery that follows on another is
answered when the end of the other is durable, so after a crash it is not less than the last one that a client has seen.

Nothing is certain while an administrator changes the offsets of a group, or where that was not answered, nor where a
power cut may take records or states away, until the offsets are altered again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kit.simulator.model import Violation

from ottla.protocol.api.share_fetch import AcknowledgeType

if TYPE_CHECKING:
    from kit.simulator.model import Model
    from kit.simulator.topic_model import TopicModel

NOWHERE: Final = 1 << 62
"""A start offset that no record has."""
DEFAULT_LIMIT: Final = 5
SharePlace = tuple[str, UUID, int]
"""(group, topic id, partition)"""


class Session:
    """A share session, from the sending of its first request until its end may have begun."""

    def __init__(self) -> None:
        self.is_over = False


@dataclass(eq=False)
class Delivery:
    """A record as a member was given it."""

    session: Session
    generation: int
    count: int
    sent: int
    """When the fetch was sent, as a number of the model."""
    taken: int
    taken_ms: float
    until_ms: float
    """Until then the lock lasts at least."""
    changes: int
    """`GroupModel.changes` when the fetch was sent."""
    may_be_over: bool = False
    """Whether the member has sent what ends it."""

    def holds_at(self, now_ms: float) -> bool:
        """Whether nobody else may have the record."""
        return not self.may_be_over and not self.session.is_over and now_ms < self.until_ms


@dataclass(eq=False)
class Acknowledgement:
    """What a member has sent of one share partition, and was not answered yet."""

    partition: SharePartitionModel
    generation: int
    sent: int
    sent_ms: float
    said: list[tuple[int, AcknowledgeType, Delivery]]
    """Offsets, and what was said of each."""
    is_wrong: bool = False
    """Whether it has to be refused."""


@dataclass
class OffsetModel:
    """What is known of one record, of one group."""

    low: int = 0
    """It was delivered at least so often before this life of the broker."""
    high: int = 0
    """It was delivered so often, as far as clients have seen."""
    durable: int = 0
    """No crash takes it below."""
    unseen_before: int = 0
    """`SharePartitionModel.unseen` when `high` was seen."""
    counts: dict[int, int] = field(default_factory=dict)
    """Deliveries of this life: their numbers, and when clients have seen them."""
    deliveries: list[Delivery] = field(default_factory=list)
    done: str = ""
    """Why it is never delivered again."""
    has_letter: bool = False
    """Whether it is done only when its dead letter is written."""
    may_be_done: int = -1
    """When something was sent that may have done it, and what became of that will never be known; -1: nothing."""
    asked: set[Acknowledgement] = field(default_factory=set)
    """What is under way."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether it may be done."""
        return bool(self.asked) or self.may_be_done >= 0


@dataclass
class _Found:
    """What the last restart has left of a share partition."""

    generation: int = -1
    least_start: int = 0
    most_start: int = NOWHERE
    done: dict[int, str] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)


class GroupModel:
    """What a group is set to, and may have been set to."""

    def __init__(self, name: str, *, reset: str, committed_only: bool) -> None:
        self.name = name
        self.resets = {reset}
        self.keeps_reset = reset == "earliest"
        self.committed_only = committed_only
        self.has_letters = False
        """Whether its archived records have dead letters."""
        self.changes = 0
        """Of offsets by an administrator, sent and answered: one that takes some away ends the group's sessions."""
        self.under_way = 0
        """Those that are sent and not answered: they may end the sessions at any time."""
        self.least_limit = self.most_limit = DEFAULT_LIMIT

    def change_asked(self) -> None:
        """An administrator changes offsets of the group."""
        self.changes += 1
        self.under_way += 1

    def change_answered(self) -> None:
        """It is done, or refused."""
        self.changes += 1
        self.under_way -= 1

    def keeps_sessions_since(self, changes: int) -> bool:
        """Whether no session may have ended by a change since there were so many."""
        return self.changes == changes and not self.under_way

    def note_limit(self, limit: int) -> None:
        """A limit of deliveries was asked for."""
        self.least_limit, self.most_limit = min(self.least_limit, limit), max(self.most_limit, limit)


class SharePartitionModel:
    """See the module."""

    def __init__(self, group: GroupModel, topic: TopicModel, index: int, *, loses_states: bool) -> None:
        self.group = group
        self.topic = topic
        self.index = index
        self._loses_states = loses_states
        self.offsets: dict[int, OffsetModel] = {}
        self.letters: set[int] = set()
        """Offsets that have a dead letter, or will have one, whatever happens."""
        self.generation = 0
        """Grows with each change of an administrator."""
        self.changes = 0
        """Those that are under way."""
        self.is_lost = False
        """Whether nothing is known until an administrator sets it."""
        self.least_start = 0
        """The start offset is not below."""
        self.most_start = NOWHERE
        """It was not above at its beginning: all records from here on are delivered."""
        self.passed = 0
        """The start of the log had perhaps come there, and with it the start offset, when a crash took that back: a
        deletion of records was asked for, and not acknowledged."""
        self.unseen = 0
        """Answers with deliveries that no client may have seen."""
        self.in_flight = 0
        """Fetches that are not answered."""
        self._acknowledgements: set[Acknowledgement] = set()
        self._found = _Found()
        self._begin_again()

    def __str__(self) -> str:
        return f"group {self.group.name}, {self.topic.name}-{self.index}"

    def _begin_again(self) -> None:
        self.offsets.clear()
        self.least_start = self.passed = 0
        self.most_start = 0 if self.group.resets == {"earliest"} else NOWHERE
        for one in self._acknowledgements:
            self._note_asked(one)

    # -- administrators -----------------------------------------------------------------------------------------------

    @property
    def is_certain(self) -> bool:
        """Whether what is known here has to be true."""
        return not self.changes and not self.is_lost

    def is_certain_since(self, generation: int) -> bool:
        """The same, of something that was sent in a generation."""
        return self.is_certain and self.generation == generation

    @property
    def _loses_beginning(self) -> bool:
        """Whether the start of the log may have passed records, which a crash may have taken back."""
        return self.topic.expires or self.topic.partitions[self.index].latest_start > 0

    def change_asked(self) -> None:
        """An administrator changes the offset, or takes it away, and with it that a letter is missing."""
        self.letters.clear()
        self.generation += 1
        self.changes += 1
        self.group.change_asked()

    def change_refused(self) -> None:
        """Nothing has come of it."""
        self.changes -= 1
        self.group.change_answered()

    def changed(self, start_offset: int | None) -> None:
        """It is done: the start offset is another one, or (None) the group begins again as a new one."""
        self.changes -= 1
        self.group.change_answered()
        self.generation += 1
        self.is_lost = False
        self._begin_again()
        if start_offset is not None:
            self.least_start = self.most_start = start_offset

    def begun_before(self, end_offset: int, generation: int) -> None:
        """A member has fetched before the partition ended there, and was answered."""
        if self.is_certain_since(generation):
            self.most_start = min(self.most_start, end_offset)

    # -- deliveries ---------------------------------------------------------------------------------------------------

    def fetch_lost(self) -> None:
        """A fetch will never be answered, or with an error that says nothing of what was delivered."""
        self.in_flight -= 1
        self.unseen += 1

    def deliver(self, offset: int, delivery: Delivery, sequence: int) -> None:
        """A member was given a record, in a generation that counts. Raises Violation."""
        where, count = f"{self}, offset {offset}", delivery.count
        if offset < self.least_start and not self._loses_beginning:
            raise Violation(f"{where}: it is delivered, and the start offset was {self.least_start}")
        known = self.offsets.setdefault(offset, OffsetModel())
        if known.done:
            raise Violation(f"{where}: it is delivered again (number {count}), and was {known.done}")
        if not 1 <= count <= self.group.most_limit:
            raise Violation(f"{where}: delivery {count}, {self.group.most_limit} is the limit")
        if self._loses_states:
            known.low = min(known.low, known.durable)
            known.counts.clear()
            known.deliveries.clear()
        if count in known.counts:
            raise Violation(f"{where}: there is a second delivery with the number {count}")
        newer = [number for number, seen in known.counts.items() if number > count and seen < delivery.sent]
        if count <= known.low or newer:
            raise Violation(f"{where}: delivery {count} comes after delivery {max([known.low, *newer])}")
        most = known.high + 1 + self.unseen - known.unseen_before + self.in_flight
        if count > most:
            raise Violation(f"{where}: delivery {count}, after delivery {known.high} (at most {most} was possible)")
        for other in known.deliveries:
            is_held = other.holds_at(delivery.taken_ms) and self.group.keeps_sessions_since(other.changes)
            if is_held and (count > other.count or delivery.until_ms > other.taken_ms):
                raise Violation(f"{where}: delivery {count} to another, and delivery {other.count} has not ended")
        if count >= known.high:
            known.high, known.unseen_before = count, self.unseen
        known.durable = max(known.durable, count - 1)
        known.counts[count] = sequence
        known.deliveries.append(delivery)
        if known.may_be_done < delivery.sent:
            known.may_be_done = -1

    def must_deliver(self, offset: int) -> bool:
        """Whether a record has to be delivered still."""
        if offset < max(self.most_start, self.passed) or not self.is_certain:
            return False
        if offset < self.least_start and self._loses_beginning:
            return False
        known = self.offsets.get(offset)
        if known is None:
            return self.unseen < self.group.least_limit
        most = known.high + self.unseen - known.unseen_before
        return not known.done and not known.is_in_doubt and most < self.group.least_limit

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    def ask(self, sent: Acknowledgement) -> None:
        """An acknowledgement is sent: each of these records may be done, or somebody else's."""
        for _, _, delivery in sent.said:
            delivery.may_be_over = True
        self._acknowledgements.add(sent)
        self._note_asked(sent)

    def _note_asked(self, sent: Acknowledgement) -> None:
        for offset, kind, _ in sent.said:
            if kind is not AcknowledgeType.RENEW:
                self.offsets.setdefault(offset, OffsetModel()).asked.add(sent)

    def answered(self, sent: Acknowledgement, lock_ms: int, now_ms: float) -> None:
        """It is done. What was said after the end of a lock counts for nothing where the start offset has passed the
        record, by another member's acknowledgement or because the cleaner has removed it: Kafka answers no error then.
        """
        self._acknowledgements.discard(sent)
        is_certain = self.is_certain_since(sent.generation)
        for offset, kind, delivery in sent.said:
            if kind is AcknowledgeType.RENEW:
                delivery.until_ms, delivery.may_be_over = sent.sent_ms + lock_ms, False
                continue
            known = self.offsets.setdefault(offset, OffsetModel())
            known.asked.discard(sent)
            if not is_certain:
                known.may_be_done = sent.sent
            elif kind is not AcknowledgeType.RELEASE:
                known.done = known.done or f"answered to be done ({kind.name.lower()})"
                if kind is AcknowledgeType.REJECT:
                    has_lock = now_ms < delivery.until_ms and delivery.generation == sent.generation
                    self._note_letter(offset, is_certain=has_lock)
            else:
                known.durable = max(known.durable, delivery.count)
                if delivery.count >= self.group.most_limit:
                    known.done = known.done or f"released after delivery {delivery.count}, the last"
                    self._note_letter(offset, is_certain=True)
                elif delivery.count >= self.group.least_limit:
                    known.may_be_done = sent.sent

    def _note_letter(self, offset: int, *, is_certain: bool) -> None:
        """A record is archived, with a letter: unless it was archived before, because the log has lost it."""
        if self.group.has_letters:
            self.offsets[offset].has_letter = True
            if is_certain and not self._loses_beginning:
                self.letters.add(offset)

    def refused(self, sent: Acknowledgement) -> None:
        """Nothing of it counts."""
        self._acknowledgements.discard(sent)
        for offset, _, _ in sent.said:
            self.offsets.setdefault(offset, OffsetModel()).asked.discard(sent)

    def forget_answer(self, sent: Acknowledgement) -> None:
        """Nobody will know what has come of it."""
        self._acknowledgements.discard(sent)
        for offset, kind, _ in sent.said:
            known = self.offsets.setdefault(offset, OffsetModel())
            known.asked.discard(sent)
            if kind is not AcknowledgeType.RENEW:
                known.may_be_done = sent.sent

    # -- what administrators are shown --------------------------------------------------------------------------------

    def describe(self, start_offset: int, lag: int, generation: int, least_start: int, end_offset: int | None) -> None:
        """The start offset and the lag that were answered; the answer was asked for in this generation, when the start
        offset was not below `least_start`. `end_offset`: where all is quiet, the high watermark. Raises Violation.
        """
        if start_offset < 0 or not self.is_certain_since(generation):
            return
        if start_offset < least_start and not self._loses_beginning:
            raise Violation(f"{self}: the start offset is {start_offset}, and was {least_start}")
        if lag < 0:
            raise Violation(f"{self}: start offset {start_offset}, but the lag is {lag}")
        self.least_start = max(self.least_start, start_offset)
        self.most_start = min(self.most_start, start_offset)
        if end_offset is None:
            return
        done = sum(
            bool(known.done) and not known.has_letter and offset >= start_offset
            for offset, known in self.offsets.items()
        )
        most = max(end_offset - start_offset - done, 0)
        if lag > most:
            raise Violation(f"{self}: the lag is {lag}: {start_offset} to {end_offset}, of which {done} are done")
        partition = self.topic.partitions[self.index]
        if self.topic.is_compacted or self.group.committed_only or self._loses_beginning:
            return
        least = sum(
            self.must_deliver(offset) and max(start_offset, partition.latest_start) <= offset < end_offset
            for offset in partition.promised
        )
        if lag < least:
            raise Violation(
                f"{self}: the lag is {lag}, and {least} records have to be delivered from {start_offset} on"
            )

    # -- the ends of lives --------------------------------------------------------------------------------------------

    def restarted(self) -> None:
        """Another broker: no record is held, and no answer of before will come."""
        for sent in list(self._acknowledgements):
            self.forget_answer(sent)
        if self.changes:
            self.is_lost, self.changes = True, 0
        self.passed = max(self.passed, self.topic.partitions[self.index].latest_start)
        self.unseen += self.in_flight
        self.in_flight = 0
        for known in self.offsets.values():
            known.low = known.durable
            known.counts.clear()
            known.deliveries.clear()

    def note_power_cut(self, sequence: int) -> None:
        """States are not synced: what there was at the last restart is there, or something newer. Letters are not
        synced either.
        """
        self.letters.clear()
        found = self._found
        if found.generation != self.generation:
            self.is_lost = True
        self.least_start = min(self.least_start, found.least_start)
        if found.most_start > self.most_start and self.group.resets != {"earliest"}:
            self.most_start = found.most_start
        for offset, known in self.offsets.items():
            known.low = known.durable = min(found.counts.get(offset, 0), known.durable)
            if known.done and offset not in found.done:
                known.done, known.may_be_done = "", sequence

    def note_found(self) -> None:
        """A restart has found what there is: no later power cut takes it."""
        self.passed = min(self.passed, self.topic.partitions[self.index].found.stop)
        self._found = _Found(
            self.generation,
            self.least_start,
            self.most_start,
            {offset: known.done for offset, known in self.offsets.items() if known.done},
            {offset: known.durable for offset, known in self.offsets.items()},
        )


class ShareModel:
    """All share groups."""

    def __init__(self, model: Model, groups: Iterable[GroupModel], *, loses_states: bool) -> None:
        self.model = model
        self.loses_states = loses_states
        """Whether a broker may forget who has what while it lives, because a state could not be written."""
        self.groups = {group.name: group for group in groups}
        self._partitions: dict[SharePlace, SharePartitionModel] = {}
        self._sequence = 0

    def next_number(self) -> int:
        """The number of something that happens now."""
        self._sequence += 1
        return self._sequence

    def partition(self, group: str, topic: TopicModel, index: int) -> SharePartitionModel:
        """A share partition."""
        place = (group, topic.id, index)
        found = self._partitions.get(place)
        if found is None:
            found = self._partitions[place] = SharePartitionModel(
                self.groups[group], topic, index, loses_states=self.loses_states
            )
        return found

    def of_group(self, group: str) -> list[SharePartitionModel]:
        """Those of a group that are known, and of topics that are there."""
        return [one for one in self._partitions.values() if one.group.name == group and self.is_there(one)]

    def is_there(self, partition: SharePartitionModel) -> bool:
        """Whether the topic is."""
        return self.model.topics.get(partition.topic.name) is partition.topic

    def topics(self) -> list[TopicModel]:
        """Those that are there, in the order of their names."""
        return [self.model.topics[name] for name in sorted(self.model.topics.keys() - self.model.deleting)]

    def restarted(self) -> None:
        """Another broker."""
        for group in self.groups.values():
            group.under_way = 0
        for one in self._partitions.values():
            one.restarted()

    def note_power_cut(self, *, syncs: bool) -> None:
        """`syncs`: what was answered of groups was synced. What records a topic loses says nobody."""
        for one in self._partitions.values():
            if not one.topic.always_syncs:
                one.is_lost = True
            if not syncs:
                one.note_power_cut(self.next_number())

    def note_found(self) -> None:
        """A restart has found what there is."""
        self._partitions = {place: one for place, one in self._partitions.items() if self.is_there(one)}
        for one in self._partitions.values():
            one.note_found()
