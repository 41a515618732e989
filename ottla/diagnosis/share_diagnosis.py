"""Why a share group receives nothing: from facts to findings, as in `group_diagnosis`. Pure.

The protocol does not say which records a member has at present. What is known of a partition: the start offset, before
which all records are done (acknowledged, or archived after the last delivery), and the lag, the records that are not.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from ottla.diagnosis.dead_letter_diagnosis import DeadLetterFacts, diagnose_dead_letters
from ottla.diagnosis.group_diagnosis import (
    Finding,
    MemberFacts,
    OpenTransaction,
    PartitionFacts,
    Weight,
    about_missing_topics,
    alike_together,
    held_back,
    in_order,
    some,
)
from ottla.shown import counted


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The keys of a share group that decide what its members get; Kafka's defaults."""

    most_locks: int = 2_000
    """`share.partition.max.record.locks`"""
    lock_ms: int = 30_000
    """`share.record.lock.duration.ms`"""
    session_ms: int = 45_000
    """`share.session.timeout.ms`"""
    most_deliveries: int = 5
    """`share.delivery.count.limit`"""
    begins_at: str = "latest"
    """`share.auto.offset.reset`"""
    is_read_committed: bool = False
    """`share.isolation.level`"""


@dataclass(frozen=True, slots=True)
class SharePartitionFacts:
    """A partition of the group. `start_offset` is None if the group has none yet, `lag` if it is not known."""

    name: str
    topic: str
    start_offset: int | None
    lag: int | None
    log_start: int
    stable_end: int
    end: int
    readers: int = 1
    open_transactions: tuple[OpenTransaction, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareFacts:
    """The facts. `existing` has the topics that exist, of those that the group has or its members subscribe to."""

    group_id: str
    members: tuple[MemberFacts, ...] = ()
    existing: frozenset[str] = frozenset()
    partitions: tuple[SharePartitionFacts, ...] = ()
    settings: ShareSettings = ShareSettings()
    dead_letters: DeadLetterFacts | None = None
    """None: the group has none."""


def diagnose_share(facts: ShareFacts) -> list[Finding]:
    """Return the findings, the most important first."""
    return in_order(
        [
            *_about_members(facts),
            *about_missing_topics(facts.members, facts.existing),
            *_about_topics_without_members(facts),
            *alike_together((one.name, found) for one in facts.partitions for found in _about_partition(facts, one)),
            *(diagnose_dead_letters(facts.dead_letters) if facts.dead_letters is not None else ()),
        ]
    )


def _about_members(facts: ShareFacts) -> Iterable[Finding]:
    if not facts.members:
        waiting = sum(_waiting(facts, one) for one in facts.partitions)
        wait = "waits" if waiting == 1 else "wait"
        text = f"it has no members; {counted(waiting, 'record')} {wait} for it" if waiting else "it has no members"
        remedy = "start a share consumer; if one runs, it has lost its session, and its log says why"
        yield Finding(Weight.CAUSE, text, remedy)
    for member in facts.members:
        if not member.topics:
            yield Finding(Weight.CAUSE, f"{member.name} subscribes to nothing", "it has not subscribed yet")
    late = [one.name for one in facts.members if not one.partitions and one.topics & facts.existing]
    if late:
        text = f"{some(late)} got no partition yet"
        yield Finding(Weight.PERHAPS, text, "each gets its partitions with one of its next heartbeats")


def _about_topics_without_members(facts: ShareFacts) -> Iterable[Finding]:
    """Topics that the group has read, and that no member subscribes to any more."""
    subscribed = {topic for member in facts.members for topic in member.topics}
    if not facts.members:
        return
    for topic in sorted({one.topic for one in facts.partitions} - subscribed):
        waiting = sum(_waiting(facts, one) for one in facts.partitions if one.topic == topic)
        wait = "waits" if waiting == 1 else "wait"
        text = f"{topic}: no member subscribes to it any more"
        text += f"; {counted(waiting, 'record')} {wait} for the group" if waiting else ""
        remedy = f"subscribe to it; or stop the members, and `ottla groups delete {_word(facts)} --topic {topic}`"
        yield Finding(Weight.CAUSE if waiting else Weight.PERHAPS, text, remedy)


def _about_partition(facts: ShareFacts, one: SharePartitionFacts) -> Iterable[Finding]:
    is_subscribed = any(one.topic in member.topics for member in facts.members)
    if is_subscribed and not one.readers and all(member.partitions for member in facts.members):
        yield Finding(Weight.CAUSE, "assigned to no member", "the group has not noticed the topic or partition yet")
    if one.start_offset is None:
        yield _nothing_done(facts, one)
        return
    if one.start_offset > one.end:  # it was read before the end, so no record that was written meanwhile explains it
        reset = f"`ottla groups reset {_word(facts)} --topic {one.topic} --to-latest --execute`"
        yield Finding(
            Weight.CAUSE,
            f"the start offset is {one.start_offset:,}, past the end ({one.end:,}): it was set so, or the log lost "
            "records; what is written before it is not delivered",
            f"stop the members, and {reset}",
        )
        return
    lag = _waiting(facts, one)
    if not lag:
        yield Finding(Weight.FINE, "read to its end (lag 0)")
    elif facts.settings.is_read_committed and lag <= one.end - one.stable_end:
        yield held_back(
            PartitionFacts(
                name=one.name,
                topic=one.topic,
                committed=one.start_offset,
                start=one.log_start,
                stable_end=one.stable_end,
                end=one.end,
                open_transactions=one.open_transactions,
            )
        )
    elif one.readers:
        yield _not_done(facts, one.start_offset, lag, one.end)


def _nothing_done(facts: ShareFacts, one: SharePartitionFacts) -> Finding:
    """The group has no start offset: no member has asked for records, or (Kafka) none of them is acknowledged yet."""
    if one.end == one.log_start:
        why = "never written to" if one.end == 0 else "empty: retention has deleted everything"
        return Finding(Weight.FINE, f"{why}, and the group has no start offset yet")
    many = one.end - one.log_start
    are = "is" if many == 1 else "are"
    text = "nothing is acknowledged yet, "
    text += f"and {counted(many, 'record')} {are} there from {one.log_start:,} to {one.end - 1:,}"
    begins_at = facts.settings.begins_at
    if begins_at == "earliest":
        return Finding(Weight.PERHAPS, text, "see whether the members poll, and acknowledge what they get")
    which = ", the default, those" if begins_at == "latest" else " older ones"
    remedy = f"`ottla configs alter --group {_word(facts)} --set share.auto.offset.reset=earliest`"
    return Finding(
        Weight.PERHAPS,
        f"{text}: with share.auto.offset.reset={begins_at}{which} from before the first poll are skipped",
        f"{remedy}, before a member polls",
    )


def _not_done(facts: ShareFacts, start_offset: int, lag: int, end: int) -> Finding:
    """Members have the partition, and records of it are not done: a member has them, or they wait to be asked for."""
    settings, in_flight = facts.settings, end - start_offset
    text = f"{counted(lag, 'record')} from {start_offset:,} on {'is' if lag == 1 else 'are'} not acknowledged"
    if lag < in_flight:
        done = in_flight - lag
        text += f" ({done:,} {'is' if done == 1 else 'are'})"
    again = (
        f"a record that a member keeps is delivered again after {settings.lock_ms / 1000:g} s, "
        f"{settings.most_deliveries:,} times in all (share.record.lock.duration.ms, share.delivery.count.limit)"
    )
    later = in_flight - settings.most_locks
    if 0 < later < lag:  # otherwise some of the later records were delivered, with the rest of their batch
        text += f": {settings.most_locks:,} may be in flight, so later ones wait while {start_offset:,} is not"
        remedy = "acknowledge or reject every record, also one that fails; or raise share.partition.max.record.locks"
        return Finding(Weight.PERHAPS, text, f"{remedy}; {again}")
    them = "it" if lag == 1 else "them"
    text += f": members have {them} locked, or have not asked for {them}"
    return Finding(Weight.PERHAPS, text, f"see whether the members poll, and acknowledge what they get; {again}")


def _waiting(facts: ShareFacts, one: SharePartitionFacts) -> int:
    if one.start_offset is None:
        return one.end - one.log_start if facts.settings.begins_at == "earliest" else 0
    return max(0, one.end - one.start_offset) if one.lag is None else one.lag


def _word(facts: ShareFacts) -> str:
    return shlex.quote(facts.group_id)
