"""Why a group receives nothing: from facts to findings, each with what to do about it. Pure.

`diagnose` asks one question after the other, about the group, its members and its partitions. It reports what blocks
the group (`CAUSE`), what may block it, depending on the consumer's options (`PERHAPS`), and what is in order (`FINE`).
Partitions with the same finding share a line.
"""

from __future__ import annotations

import difflib
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ottla.shown import counted

MOST_NAMED = 4
"""How many partitions, members or topics of a kind are named; the others are counted."""
STABLE = "Stable"
NOT_READY = "NotReady"
"""The state of a streams group whose topics are missing, or do not have the partitions that its topology needs."""
_WORDS = {
    "PreparingRebalance": "it is rebalancing: it waits for its members to join again",
    "CompletingRebalance": "it is rebalancing: it waits for the assignment of its leader",
    "Assigning": "it is rebalancing: the broker computes the assignment",
    "Reconciling": "it is rebalancing: members are giving up, or taking over, partitions",
}


class Weight(StrEnum):
    """The weight of a finding."""

    CAUSE = "!"
    PERHAPS = "?"
    FINE = "-"


class Finding(NamedTuple):
    """A finding, and what can be done about it (empty if it is in order)."""

    weight: Weight
    text: str
    remedy: str = ""


class OpenTransaction(NamedTuple):
    """A transaction that holds the last stable offset back.

    Attributes:
        silent_for_ms: how long ago it last wrote to the partition.
        transactional_id: its id, if a coordinator reports that it is open.
        is_hanging: no coordinator knows it, so that no coordinator will end it.
    """

    producer_id: int
    start_offset: int
    silent_for_ms: int | None = None
    transactional_id: str | None = None
    is_hanging: bool = False


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """A member: its subscription, its partitions, and those that it still has to give up or take (None: not known)."""

    name: str
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    partitions: int = 0
    to_give_up: tuple[str, ...] = ()
    to_take: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition of the group: `end` is the high watermark, `stable_end` the last stable offset."""

    name: str
    topic: str
    committed: int | None
    start: int
    stable_end: int
    end: int
    owner: str | None = None
    is_owner_static: bool = False
    """Whether it has a group.instance.id: then it stays a member for its session when it ends."""
    open_transactions: tuple[OpenTransaction, ...] = ()
    pending_by: tuple[str, ...] | None = None
    """The transactional ids of open transactions, one of which has committed an offset that does not count yet; None
    if there is no such offset."""
    has_only_ends: bool = False
    """Between the committed offset and the last stable one are only ends of transactions and aborted records."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The facts. `partition_counts` has the topics that exist, of those subscribed to or committed."""

    group_id: str
    state: str | None
    """None: there is no such group."""
    protocol_type: str = "consumer"
    members: tuple[MemberFacts, ...] = ()
    partition_counts: dict[str, int] = field(default_factory=dict)
    partitions: tuple[PartitionFacts, ...] = ()
    committed_elsewhere: tuple[str, ...] = ()
    """Partitions with committed offsets, of topics that do not exist."""
    retention_minutes: int | None = None
    """The broker's `offsets.retention.minutes`."""
    other_groups: tuple[str, ...] = ()


def without_coordinator(reason: str) -> Finding:
    """The finding for a group without a coordinator: no client can join or commit."""
    text = f"no broker coordinates it: {reason}"
    return Finding(Weight.CAUSE, text, "see what the broker logs about __consumer_offsets, and `ottla config`")


def diagnose(facts: GroupFacts) -> list[Finding]:
    """Return the findings, the most important first."""
    if facts.state is None and not facts.partitions:
        return [_no_such_group(facts)]
    if facts.protocol_type not in ("consumer", "streams", ""):
        text = f"its members speak {facts.protocol_type!r}: only they know what they read"
        return [Finding(Weight.PERHAPS, text, "ask the program that they belong to")]
    findings = [
        *_about_group(facts),
        *_about_subscriptions(facts),
        *_about_idle_members(facts),
        *_about_orphans(facts),
        *_about_partitions(facts),
    ]
    return in_order(findings)


def in_order(findings: list[Finding]) -> list[Finding]:
    """The most important first, and a last line if nothing is in the way."""
    if not any(finding.weight is not Weight.FINE for finding in findings):
        findings = [*findings, Finding(Weight.FINE, "nothing is in the way: what is written next will be received")]
    order = list(Weight)
    return sorted(findings, key=lambda finding: order.index(finding.weight))


def _no_such_group(facts: GroupFacts) -> Finding:
    near = difflib.get_close_matches(facts.group_id, facts.other_groups, n=1)
    meant = f"did you mean {near[0]}? else " if near else ""
    return Finding(
        Weight.CAUSE,
        f"there is no such group: no consumer has joined it, and it has committed nothing{_or_expired(facts)}",
        f"{meant}start a consumer with this group.id; `ottla groups list` shows those there are",
    )


def _about_group(facts: GroupFacts) -> Iterable[Finding]:
    if not facts.members:
        waiting = sum(_lag(one) for one in facts.partitions)
        wait = "waits" if waiting == 1 else "wait"
        text = f"it has no members; {counted(waiting, 'record')} {wait} for it" if waiting else "it has no members"
        start = "start the application; if it" if facts.protocol_type == "streams" else "start a consumer; if one"
        remedy = f"{start} runs, it has lost its session, and its log says why"
        yield Finding(Weight.CAUSE, text, remedy)
    elif facts.state == NOT_READY:
        text = "its members have no tasks: topics are missing, or do not have the partitions that the application needs"
        yield Finding(Weight.CAUSE, text, "the log of the application names the topics")
    elif facts.state in _WORDS:
        for member in facts.members:
            for verb, partitions in (("give up", member.to_give_up), ("take", member.to_take)):
                if partitions:
                    text = f"{member.name} has yet to {verb} {some(partitions)}"
                    yield Finding(Weight.CAUSE, text, "it does so when it next asks for records")
        yield Finding(
            Weight.CAUSE,
            _WORDS[facts.state],
            "wait; if it lasts, a member takes long between two polls (max.poll.interval.ms), or members come and go",
        )


def about_missing_topics(members: Iterable[MemberFacts], existing: Collection[str]) -> Iterable[Finding]:
    """One finding for each topic that members subscribe to, and that does not exist."""
    for topic in sorted({topic for member in members for topic in member.topics} - {*existing}):
        yield Finding(
            Weight.CAUSE,
            f"{topic}: subscribed to, but there is no such topic{_perhaps_meant(topic, existing)}",
            f"create it (`ottla topics create {topic}`), or subscribe to the right name",
        )


def _about_subscriptions(facts: GroupFacts) -> Iterable[Finding]:
    yield from about_missing_topics(facts.members, facts.partition_counts)
    if facts.committed_elsewhere:
        text = f"{some(facts.committed_elsewhere)}: committed, but the topic does not exist any more"
        yield Finding(Weight.PERHAPS, text, "if it is created again, old offsets are out of range; delete them before")


def _about_idle_members(facts: GroupFacts) -> Iterable[Finding]:
    if facts.state != STABLE:
        return
    idle = [member for member in facts.members if not member.partitions]
    for member in [member for member in idle if not member.topics]:
        text = f"{member.name} subscribes to nothing"
        remedy = "it assigns partitions by hand, or has not subscribed yet"
        if member.pattern is not None:
            text = (
                f"{member.name} got nothing: its pattern {member.pattern!r} matches no topic, or only topics of others"
            )
            remedy = "compare it with `ottla topics list`; whole names have to match"
        yield Finding(Weight.CAUSE, text, remedy)
    by_topics: dict[frozenset[str], list[MemberFacts]] = defaultdict(list)
    for member in idle:
        if member.topics & facts.partition_counts.keys():
            by_topics[member.topics].append(member)
    for topics, members in by_topics.items():
        partitions = sum(facts.partition_counts.get(topic, 0) for topic in topics)
        readers = sum(bool(member.topics & topics) for member in facts.members)
        names = some([member.name for member in members])
        shared = counted(partitions, "partition")
        share = "shares" if readers == 1 else "share"
        text = f"{names} got no partition: {counted(readers, 'member')} {share} {shared} of {some(sorted(topics))}"
        most = max(facts.partition_counts.get(topic, 0) for topic in topics)
        remedy = f"no more members than partitions, or more partitions (`ottla topics alter`, {most} now)"
        if readers <= partitions:
            remedy = "an assignor that works topic by topic (range) leaves members idle; roundrobin and the like do not"
        yield Finding(Weight.CAUSE, text, remedy)


def _about_orphans(facts: GroupFacts) -> Iterable[Finding]:
    subscribed = {topic for member in facts.members for topic in member.topics}
    orphans = [one.name for one in facts.partitions if one.owner is None and one.topic in subscribed]
    if facts.state == STABLE and orphans:
        text = f"{some(orphans)}: assigned to no member"
        yield Finding(
            Weight.CAUSE,
            text,
            "the group has not noticed new partitions yet (metadata.max.age.ms), or its assignor fails",
        )


def _about_partitions(facts: GroupFacts) -> Iterable[Finding]:
    is_read = facts.state == STABLE and bool(facts.members)
    return alike_together(
        (one.name, finding) for one in facts.partitions for finding in _about_partition(facts, one, is_read)
    )


def alike_together(found: Iterable[tuple[str, Finding]]) -> Iterable[Finding]:
    """Findings about partitions, by name: equal ones share a line."""
    alike: dict[Finding, list[str]] = defaultdict(list)
    for name, finding in found:
        alike[finding].append(name)
    for finding, names in alike.items():
        yield finding._replace(text=f"{some(names)}: {finding.text}")


def _about_partition(facts: GroupFacts, one: PartitionFacts, is_read: bool) -> Iterable[Finding]:
    reset = f"`ottla groups reset {facts.group_id} --topic {one.topic} --to-earliest`"
    position = one.committed
    if position is None:
        yield _nothing_committed(facts, one, reset)
        position = one.start
    elif position < one.start:
        yield Finding(
            Weight.PERHAPS,
            f"committed at {position:,}, which is deleted (the log begins at {one.start:,}): "
            "auto.offset.reset decides, and latest skips what is there",
            f"{reset}; longer retention.ms or faster consumers keep it from happening again",
        )
    elif position > one.end:
        yield Finding(
            Weight.CAUSE,
            f"committed at {position:,}, past the end ({one.end:,}): the topic was created again, or lost records; "
            "auto.offset.reset decides",
            reset,
        )
    elif position == one.end:
        yield Finding(Weight.FINE, "read to its end")
    if one.pending_by is not None:
        yield _pending(one.pending_by)
    if one.stable_end < one.end and (one.has_only_ends or one.stable_end <= position < one.end):
        yield held_back(one)
    if one.has_only_ends:
        yield Finding(
            Weight.FINE,
            f"read to its end: from {position:,} on are only ends of transactions and aborted records, "
            "which count as lag",
        )
    elif one.committed is not None and one.start <= position < one.stable_end and is_read and one.owner is not None:
        waiting = one.stable_end - position
        number = one.name.rpartition("-")[2]
        has_ended = "has ended and its session has not, or " if one.is_owner_static else ""
        yield Finding(
            Weight.PERHAPS,
            f"{counted(waiting, 'record')} from {position:,} on {'waits' if waiting == 1 else 'wait'}, "
            f"and {one.owner} has it",
            f"that consumer {has_ended}is slow, paused, stuck or fails at this record: "
            f"`ottla consume {one.topic} --partition {number} --offset {position} --max-messages 1`",
        )


def _nothing_committed(facts: GroupFacts, one: PartitionFacts, reset: str) -> Finding:
    if one.end == one.start:
        why = "never written to" if one.end == 0 else "empty: retention has deleted everything"
        return Finding(Weight.FINE, f"{why}, and nothing is committed")
    are = "is" if one.end - one.start == 1 else "are"
    return Finding(
        Weight.PERHAPS,
        f"nothing is committed, and {counted(one.end - one.start, 'record')} {are} there from {one.start:,} "
        f"to {one.end - 1:,}: "
        f"with auto.offset.reset=latest, the default, they are skipped{_or_expired(facts)}",
        f"auto.offset.reset=earliest, or {reset}",
    )


def held_back(one: PartitionFacts) -> Finding:
    """The finding about an open transaction after which `read_committed` consumers read nothing."""
    text = f"an open transaction holds back the records from {one.stable_end:,} to {one.end - 1:,}"
    remedy = "its producer has to commit or abort; until then only read_uncommitted gets these records"
    if one.open_transactions:
        oldest = min(one.open_transactions, key=lambda transaction: transaction.start_offset)
        whose = "" if oldest.transactional_id is None else f"transactional id {oldest.transactional_id!r}, "
        silent = "" if oldest.silent_for_ms is None else f", silent for {oldest.silent_for_ms / 1000:,.0f} s"
        text += f" ({whose}producer {oldest.producer_id}, begun at {oldest.start_offset:,}{silent})"
        if oldest.transactional_id is not None:
            remedy = (
                "its producer has to commit or abort, or its time-out to pass; "
                f"`ottla transactions abort {shlex.quote(oldest.transactional_id)}` ends it now"
            )
        elif oldest.is_hanging:
            number = one.name.rpartition("-")[2]
            text += ", of which no coordinator knows"
            remedy = f"no coordinator will end it: `ottla transactions abort --topic {one.topic} --partition {number}`"
    return Finding(Weight.CAUSE, text, remedy)


def _pending(transactional_ids: Sequence[str]) -> Finding:
    text = (
        "an open transaction has committed an offset that does not count yet; a consumer that begins waits for its end"
    )
    remedy = "its producer has to commit or abort, or its time-out to pass"
    if transactional_ids:
        are = "transactional id" if len(transactional_ids) == 1 else "one of the transactional ids"
        text += f" ({are} {some([repr(one) for one in transactional_ids])})"
        remedy += f"; `ottla transactions abort {shlex.quote(transactional_ids[0])}` ends it now"
    return Finding(Weight.PERHAPS, text, remedy)


def _lag(one: PartitionFacts) -> int:
    if one.has_only_ends:
        return one.end - one.stable_end
    return max(0, one.end - max(one.committed if one.committed is not None else one.start, one.start))


def _or_expired(facts: GroupFacts) -> str:
    if facts.retention_minutes is None:
        return ""
    return f" (a group without members loses its offsets after {_duration(facts.retention_minutes)})"


def _duration(minutes: int) -> str:
    for unit, size in (("days", 24 * 60), ("hours", 60)):
        if minutes >= size and minutes % size == 0:
            return f"{minutes // size} {unit}"
    return f"{minutes} minutes"


def _perhaps_meant(topic: str, existing: Iterable[str]) -> str:
    near = difflib.get_close_matches(topic, list(existing), n=1)
    return f" (there is {near[0]})" if near else ""


def some(names: Sequence[str]) -> str:
    """Name a few, count the rest."""
    if len(names) <= MOST_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: MOST_NAMED - 1])} and {len(names) - MOST_NAMED + 1} more"
