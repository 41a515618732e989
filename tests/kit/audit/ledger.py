"""What a broker answered its real clients, and what therefore must be true after each of its deaths.

A death of the process keeps what was written; a power cut (the audit cuts and overwrites files) keeps what was synced.
So each partition remembers what survives *everything* (acks=all in `ottla.acks.all=sync`, what was seen by a reader,
what an earlier audit found: a start writes and syncs what it keeps) and what survives only the *death of the process*
(acks=1, or `page-cache`). Producers, consumers and the administrator note the answers from their own threads; the audit
settles them while no client asks for anything.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from kit.audit.values import Mark, key_of

Place = tuple[str, int]
MOST_SHOWN = 5


@dataclass(slots=True)
class Shown:
    """Everything that a partition shows to a reader."""

    start: int
    end: int
    records: dict[int, Mark]
    wrong: list[str] = field(default_factory=list)
    """What was never sent like that, or came out of order."""


@dataclass(slots=True)
class PartitionLedger:
    """What is known of one partition."""

    kept: dict[int, Mark] = field(default_factory=dict)
    soft: dict[int, Mark] = field(default_factory=dict)
    homeless: set[Mark] = field(default_factory=set)
    """Acknowledged, and the client does not know where."""
    shown_end: int = 0
    start: int = 0
    start_asked: int = 0
    gaps: list[range] = field(default_factory=list)
    """Offsets that were given out, and whose records the audit itself has taken away."""


@dataclass(slots=True)
class TopicLedger:
    """A topic whose creation was acknowledged, or found."""

    name: str
    partitions: list[PartitionLedger]
    settings: dict[str, str] = field(default_factory=dict)
    settings_asked: list[dict[str, str]] = field(default_factory=list)
    """Settings of changes whose answer is not known."""
    counts_asked: int = 0

    @property
    def is_compacted(self) -> bool:
        return self.settings.get("cleanup.policy") == "compact"

    @property
    def expires(self) -> bool:
        return "retention.bytes" in self.settings


@dataclass(slots=True)
class ProducerLedger:
    """A producer: `is_once` says that none of its records may be stored twice."""

    name: str
    is_once: bool
    sent: int = 0
    acknowledged: int = 0


@dataclass(slots=True)
class CommitLedger:
    """Committed offsets of one group and partition."""

    kept: int = -1
    asked: int = -1


class Ledger:
    """See the module. Methods may be called from any thread."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.topics: dict[str, TopicLedger] = {}
        self.creating: dict[str, tuple[int, dict[str, str]]] = {}
        self.deleting: set[str] = set()
        self.producers: list[ProducerLedger] = []
        self.commits: dict[tuple[str, Place], CommitLedger] = defaultdict(CommitLedger)
        self.is_sync = True
        """Whether acks=all and what is seen survive a power cut: what the broker that runs now promises."""
        self.counts: Counter[str] = Counter()
        self.breaches: list[str] = []

    # -- what clients tell

    def enlist(self, name: str, *, is_once: bool) -> int:
        """A producer begins; its number."""
        with self.lock:
            self.producers.append(ProducerLedger(name, is_once))
            return len(self.producers) - 1

    def next_mark(self, producer: int) -> Mark:
        """The next record that a producer sends."""
        with self.lock:
            one = self.producers[producer]
            one.sent += 1
            return Mark(producer, one.sent - 1)

    def acknowledged(self, place: Place, offset: int | None, mark: Mark, *, is_all: bool = True) -> None:
        """A record was acknowledged; `is_all`: by acks=all. `offset` is None where the client does not know it."""
        with self.lock:
            self.counts["acknowledged"] += 1
            self.producers[mark.producer].acknowledged += 1
            topic = self.topics.get(place[0])
            if topic is None:
                return
            known = topic.partitions[place[1]]
            if offset is None or offset < 0:
                if is_all:
                    known.homeless.add(mark)
                return
            survives = is_all and self.is_sync
            taken = known.kept.get(offset) or known.soft.get(offset)
            if taken is not None and taken != mark:
                self.breach(f"{place} offset {offset}: acknowledged for {taken}, and again for {mark}")
            (known.kept if survives else known.soft)[offset] = mark

    def seen(self, place: Place, next_offset: int) -> None:
        """A consumer was shown all below `next_offset`, or answered that the log reaches there."""
        with self.lock:
            topic = self.topics.get(place[0])
            if topic is not None:
                known = topic.partitions[place[1]]
                known.shown_end = max(known.shown_end, next_offset)

    def committing(self, group: str, place: Place, offset: int) -> None:
        """A commit is about to be asked for."""
        with self.lock:
            known = self.commits[group, place]
            known.asked = max(known.asked, offset)

    def committed(self, group: str, place: Place, offset: int) -> None:
        """A commit was acknowledged."""
        with self.lock:
            self.counts["commits"] += 1
            known = self.commits[group, place]
            known.kept = max(known.kept, offset)

    def breach(self, what: str) -> None:
        """A promise was broken."""
        with self.lock:
            self.breaches.append(what)

    # -- what must be true

    def must_reach(self, place: Place) -> int:
        """Below which offset a power cut may take nothing away."""
        with self.lock:
            known = self.topics[place[0]].partitions[place[1]]
            return max([known.shown_end, known.start, *(offset + 1 for offset in known.kept)])

    def lose_from(self, place: Place, offset: int) -> None:
        """A power cut has taken what lay from there on and was not promised to survive it."""
        with self.lock:
            known = self.topics[place[0]].partitions[place[1]]
            known.soft = {at: mark for at, mark in known.soft.items() if at < offset}

    def destroy(self, place: Place, first_lost: int, reached: int) -> None:
        """The audit has taken away what lay from `first_lost` on, of a log that had come to `reached` by what
        a start can read: no offset below that may be given out again.
        """
        self.lose_from(place, first_lost)
        with self.lock:
            known = self.topics[place[0]].partitions[place[1]]
            known.kept = {at: mark for at, mark in known.kept.items() if at < first_lost}
            known.homeless.clear()
            known.shown_end = reached
            known.gaps.append(range(first_lost, reached))

    def audit_topics(self, found: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
        """Partition counts and settings by name; what was in doubt is settled by what is there."""
        with self.lock:
            for name, topic in list(self.topics.items()):
                if name in found:
                    self._audit_topic(topic, *found[name])
                    continue
                if name not in self.deleting:
                    self.breach(f"topic {name} is gone, and nobody deleted it")
                self.topics.pop(name)
            for name, (count, settings) in found.items():
                if name in self.topics:
                    continue
                if name not in self.creating:
                    self.breach(f"topic {name} is there: it was deleted, or never created")
                partitions = [PartitionLedger() for _ in range(count)]
                self.topics[name] = TopicLedger(name, partitions, dict(settings), counts_asked=count)
            self.creating.clear()
            self.deleting.clear()

    def _audit_topic(self, topic: TopicLedger, count: int, settings: Mapping[str, str]) -> None:
        if not len(topic.partitions) <= count <= max(len(topic.partitions), topic.counts_asked):
            self.breach(f"topic {topic.name} has {count} partitions, {len(topic.partitions)} were acknowledged")
        topic.partitions.extend(PartitionLedger() for _ in range(count - len(topic.partitions)))
        if settings != topic.settings and settings not in topic.settings_asked:
            self.breach(f"topic {topic.name} has {dict(settings)}, acknowledged was {topic.settings}")
        topic.settings, topic.settings_asked, topic.counts_asked = dict(settings), [], count

    def audit_partition(self, place: Place, shown: Shown) -> None:
        """Hold what a partition shows against what is known of it; afterwards it is what is known."""
        with self.lock:
            topic = self.topics[place[0]]
            known = topic.partitions[place[1]]
            for what in shown.wrong[:MOST_SHOWN]:
                self.breach(f"{place}: {what}")
            self._audit_bounds(topic, known, shown, place)
            self._audit_contents(topic, known, shown, place)
            self._audit_order(shown, place)
            self.counts["read"] += len(shown.records)
            topic.partitions[place[1]] = PartitionLedger(
                dict(shown.records), {}, set(), shown.end, start=shown.start, start_asked=shown.start, gaps=known.gaps
            )

    def _audit_bounds(self, topic: TopicLedger, known: PartitionLedger, shown: Shown, place: Place) -> None:
        if shown.end < known.shown_end:
            self.breach(f"{place} ends at {shown.end}; {known.shown_end} had been shown")
        if shown.start < known.start:
            self.breach(f"{place} starts at {shown.start}; records below {known.start} had been deleted")
        if shown.start > max(known.start, known.start_asked) and not topic.expires:
            self.breach(f"{place} starts at {shown.start}; nobody deleted beyond {known.start_asked}")
        lost = {offset for gap in known.gaps for offset in gap}
        if again := sorted(lost & shown.records.keys()):
            self.breach(f"{place}: {len(again)} offsets were given out twice: {again[:MOST_SHOWN]}")
        missing = sorted(set(range(shown.start, shown.end)) - shown.records.keys() - lost)
        if missing and not topic.is_compacted:
            gaps = missing[:MOST_SHOWN]
            self.breach(f"{place} has {len(missing)} gaps between {shown.start} and {shown.end}: {gaps}")

    def _audit_contents(self, topic: TopicLedger, known: PartitionLedger, shown: Shown, place: Place) -> None:
        must = dict(known.kept)
        must.update(known.soft)
        newest: dict[bytes, int] = {}
        if topic.is_compacted:
            for offset, mark in (shown.records | must).items():
                key = key_of(mark)
                newest[key] = max(offset, newest.get(key, -1))
        lost = []
        for offset, mark in must.items():
            found = shown.records.get(offset)
            if found == mark or offset < shown.start:
                continue
            if found is None and topic.is_compacted and newest[key_of(mark)] > offset:
                continue  # a later record of its key stands for it
            lost.append(f"{offset} {mark}, found {found}")
        if known.homeless and not topic.is_compacted and not shown.start:
            lost += [f"? {mark}" for mark in known.homeless - set(shown.records.values())]
        if lost:
            self.counts["lost"] += len(lost)
            self.breach(f"{place}: {len(lost)} acknowledged records lost: {'; '.join(sorted(lost)[:MOST_SHOWN])}")

    def _audit_order(self, shown: Shown, place: Place) -> None:
        last: dict[int, int] = {}
        stored: set[Mark] = set()
        for offset, mark in shown.records.items():
            one = self.producers[mark.producer] if mark.producer < len(self.producers) else None
            if one is None or mark.sequence >= one.sent:
                self.breach(f"{place} offset {offset}: {mark} was never sent")
                continue
            if mark in stored:
                self.counts["doubled" if one.is_once else "repeated"] += 1
                if one.is_once:
                    self.breach(f"{place} offset {offset}: {mark} of {one.name} is stored twice")
                continue
            stored.add(mark)
            # Where the start of the log is gone, a repeat of a plain producer may be all that is left of a record.
            is_ordered = one.is_once or not shown.start
            if is_ordered and mark.sequence < last.get(mark.producer, -1):
                self.counts["disordered"] += 1
                self.breach(f"{place} offset {offset}: {mark} of {one.name} comes after {last[mark.producer]}")
            last[mark.producer] = mark.sequence

    def audit_commit(self, group: str, place: Place, offset: int) -> None:
        """What a group's committed offset is said to be; -1 for none."""
        with self.lock:
            known = self.commits[group, place]
            if offset < known.kept:
                self.breach(f"{group} {place}: the committed offset went back from {known.kept} to {offset}")
            if offset > known.asked:
                self.breach(f"{group} {place}: {offset} is committed, nothing above {known.asked} was asked for")
            known.kept = max(known.kept, offset)
