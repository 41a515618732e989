"""Why the dead letters of a share group are lost (KIP-1191): from facts to findings, as in `group_diagnosis`. Pure.

A broker accepts any name for the topic of dead letters, and archives a record without its letter if the topic cannot
take it: only the broker's log and metrics say so. The findings name what an administrator has to change.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from ottla.diagnosis.group_diagnosis import Finding, Weight, some
from ottla.shown import counted
from ottla.storage.formats.layout import topic_name_problem

NAME_KEY = "errors.deadletterqueue.topic.name"
COPY_KEY = "errors.deadletterqueue.copy.record.enable"
ENABLE_KEY = "errors.deadletterqueue.group.enable"
PREFIX_KEY = "errors.deadletterqueue.topic.name.prefix"
CREATE_KEY = "errors.deadletterqueue.auto.create.topics.enable"
DEAD_LETTER_LEVEL = 2
"""The level of `share.version` from which on brokers write dead letters."""


@dataclass(frozen=True, slots=True)
class LetterTopic:
    """A topic for dead letters that exists: the settings that decide what it takes, and its offline partitions."""

    takes_letters: bool = True
    """`errors.deadletterqueue.group.enable`"""
    is_compacted: bool = False
    max_message_bytes: int | None = None
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeadLetterFacts:
    """The facts. `topic` is None if it does not exist; `is_hidden` if the user may not see it."""

    group_id: str
    name: str
    copies: bool = False
    share_version: int | None = None
    """The level of the feature; None if it is not known."""
    prefix: str = ""
    is_created: bool = False
    """Whether the broker creates a topic that does not exist."""
    topic: LetterTopic | None = None
    is_hidden: bool = False
    letter_bytes: int = 0
    """A batch with one letter without a copy, of the topic for which it is the longest."""
    most_record_bytes: int = 0
    """The largest `max.message.bytes` of the topics that the group reads."""


def diagnose_dead_letters(facts: DeadLetterFacts) -> list[Finding]:
    """Return the findings: those that lose letters, or one that all is in order."""
    if facts.share_version is not None and facts.share_version < DEAD_LETTER_LEVEL:
        text = f"no dead letters are written: share.version is {facts.share_version}"
        return [Finding(Weight.CAUSE, text, f"`ottla features upgrade share.version {DEAD_LETTER_LEVEL}`")]
    findings = [*_about_name(facts)]
    if not findings:
        findings = [*(_about_topic(facts, facts.topic) if facts.topic is not None else _without_topic(facts))]
    if any(one.weight is not Weight.FINE for one in findings):
        return findings
    return [*findings, Finding(Weight.FINE, f"{facts.name} takes its dead letters")] if facts.topic else findings


def _about_name(facts: DeadLetterFacts) -> Iterable[Finding]:
    other = f"`ottla configs alter --group {shlex.quote(facts.group_id)} --set {NAME_KEY}=TOPIC`"
    problem = topic_name_problem(facts.name)
    if problem is not None:
        text = f"dead letters are lost: no topic can have the name in {NAME_KEY}: {problem}"
        yield Finding(Weight.CAUSE, text, other)
    elif not facts.name.startswith(facts.prefix):
        text = f"dead letters are lost: the name {facts.name} does not begin with {facts.prefix} ({PREFIX_KEY})"
        yield Finding(Weight.CAUSE, text, f"{other}, or change the key of the broker")


def _without_topic(facts: DeadLetterFacts) -> Iterable[Finding]:
    if facts.is_hidden:
        text = f"{facts.name}, the topic for dead letters, cannot be seen by this user"
        yield Finding(Weight.PERHAPS, text, "ask with the rights to describe the topic and its configuration")
    elif facts.is_created:
        yield Finding(Weight.FINE, f"{facts.name} is created with the first dead letter")
    else:
        create = f"`ottla topics create {facts.name} --config {ENABLE_KEY}=true`"
        yield Finding(Weight.CAUSE, f"dead letters are lost: there is no topic {facts.name}", create)


def _about_topic(facts: DeadLetterFacts, topic: LetterTopic) -> Iterable[Finding]:
    alter = f"ottla configs alter --topic {facts.name}"
    if not topic.takes_letters:
        text = f"dead letters are lost: {facts.name} does not take them ({ENABLE_KEY}=false)"
        yield Finding(Weight.CAUSE, text, f"`{alter} --set {ENABLE_KEY}=true`")
    if topic.is_compacted:
        remedy = f"`{alter} --set cleanup.policy=delete`"
        if facts.copies:
            text = f"{facts.name} is compacted: dead letters of records without a key are lost"
            yield Finding(Weight.PERHAPS, text, remedy)
        else:
            text = f"dead letters are lost: {facts.name} is compacted, and they have no key"
            yield Finding(Weight.CAUSE, text, f"{remedy}, or `{_copying(facts)}`")
    if topic.max_message_bytes is not None:
        yield from _about_size(facts, topic.max_message_bytes, alter)
    if topic.offline:
        which = some([f"{facts.name}-{index}" for index in topic.offline])
        text = f"{which} {'is' if len(topic.offline) == 1 else 'are'} offline: dead letters wait, and then the group"
        yield Finding(Weight.CAUSE, text, "see what the broker logs about it")


def _about_size(facts: DeadLetterFacts, most_bytes: int, alter: str) -> Iterable[Finding]:
    if most_bytes < facts.letter_bytes:
        text = f"dead letters are lost: {facts.name} has max.message.bytes={most_bytes}, and they take "
        text += f"about {counted(facts.letter_bytes, 'byte')}"
        yield Finding(Weight.CAUSE, text, f"`{alter} --set max.message.bytes=1048588`")
    elif facts.copies and most_bytes < facts.most_record_bytes:
        text = f"{facts.name} has max.message.bytes={most_bytes}, and a topic of the group "
        text += f"{facts.most_record_bytes}: dead letters of large records have no copy of them"
        need = facts.most_record_bytes + facts.letter_bytes
        yield Finding(Weight.PERHAPS, text, f"`{alter} --set max.message.bytes={need}`")


def _copying(facts: DeadLetterFacts) -> str:
    return f"ottla configs alter --group {shlex.quote(facts.group_id)} --set {COPY_KEY}=true"
