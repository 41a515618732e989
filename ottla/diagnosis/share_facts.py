"""The facts about a share group that `ottla groups` asks a cluster for: members, start offsets, lags, settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.diagnosis.dead_letter_facts import dead_letter_facts_of
from ottla.diagnosis.group_facts import Edges, edges_of_topics, member_facts, open_transactions
from ottla.diagnosis.share_diagnosis import ShareFacts, SharePartitionFacts, ShareSettings

if TYPE_CHECKING:
    from ottla.client import Admin, GroupDescription, MemberDescription, ShareGroupOffset, TopicPartition


class ShareView(NamedTuple):
    """A share group with its partitions: those that it has an offset of, and those of the topics of its members.

    `offsets`: None for a partition without a start offset yet. `readers`: several members may have the same partition.
    """

    description: GroupDescription
    offsets: dict[TopicPartition, ShareGroupOffset | None]
    edges: dict[TopicPartition, Edges]
    readers: dict[TopicPartition, list[MemberDescription]]

    @property
    def partitions(self) -> list[TopicPartition]:
        """All of them, sorted."""
        return sorted(self.offsets.keys() | self.readers.keys() | self.edges.keys())

    @property
    def is_missing(self) -> bool:
        """Never: there is a description."""
        return False

    def place(self, partition: TopicPartition) -> tuple[int | None, int | None, int | None]:
        """The start offset, the end of the log, and the lag; None where it is not known."""
        found, edges = self.offsets.get(partition), self.edges.get(partition)
        end = edges.end if edges is not None else None
        return (None, end, None) if found is None else (found.start_offset, end, found.lag)


async def view_share_group(admin: Admin, group: GroupDescription) -> ShareView:
    """All partitions of a share group, and of the topics that its members subscribe to."""
    offsets = (await admin.share_group_offsets({group.group_id: None}))[group.group_id]
    readers: dict[TopicPartition, list[MemberDescription]] = {}
    for member in group.members:
        for partition in member.assignment:
            readers.setdefault(partition, []).append(member)
    topics = {one.topic for one in (*offsets, *readers)} | {topic for one in group.members for topic in one.topics}
    return ShareView(group, offsets, await edges_of_topics(admin, topics), readers)


async def share_facts_of(admin: Admin, group: GroupDescription) -> ShareFacts:
    """Return the facts that `diagnose_share` needs."""
    view = await view_share_group(admin, group)
    texts = await texts_of(admin, group.group_id)
    settings = _read(texts)
    transactions = await open_transactions(admin, view.edges) if settings.is_read_committed else {}
    partitions: list[SharePartitionFacts] = []
    for one, edges in sorted(view.edges.items()):
        start_offset, _, lag = view.place(one)
        partitions.append(
            SharePartitionFacts(
                name=f"{one.topic}-{one.partition}",
                topic=one.topic,
                start_offset=start_offset,
                lag=lag,
                log_start=edges.start,
                stable_end=edges.stable_end,
                end=edges.end,
                readers=len(view.readers.get(one, ())),
                open_transactions=transactions.get(one, ()),
            )
        )
    return ShareFacts(
        group_id=group.group_id,
        members=tuple(member_facts(member) for member in group.members),
        existing=frozenset(one.topic for one in view.edges),
        partitions=tuple(partitions),
        settings=settings,
        dead_letters=await dead_letter_facts_of(admin, group.group_id, texts, {one.topic for one in view.edges}),
    )


async def settings_of(admin: Admin, group_id: str) -> ShareSettings:
    """The settings of a share group, or Kafka's defaults if the broker does not report them."""
    return _read(await texts_of(admin, group_id))


async def texts_of(admin: Admin, group_id: str) -> dict[str, str | None]:
    """The keys of a group and their values; none if the broker does not report them."""
    from ottla.client import ConfigResource, KafkaError

    resource = ConfigResource.group(group_id)
    try:
        entries = (await admin.describe_configs([resource]))[resource]
    except KafkaError:  # the diagnosis continues without
        return {}
    return {key: entry.value for key, entry in entries.items()}


def _read(texts: Mapping[str, str | None]) -> ShareSettings:
    """The settings of a share group, Kafka's defaults for those that are not known."""
    known = ShareSettings()

    def number(key: str, default: int) -> int:
        value = texts.get(key)
        return int(value) if value is not None and value.isdecimal() else default

    def text(key: str, default: str) -> str:
        value = texts.get(key)
        return default if value is None else value

    return ShareSettings(
        most_locks=number("share.partition.max.record.locks", known.most_locks),
        lock_ms=number("share.record.lock.duration.ms", known.lock_ms),
        session_ms=number("share.session.timeout.ms", known.session_ms),
        most_deliveries=number("share.delivery.count.limit", known.most_deliveries),
        begins_at=text("share.auto.offset.reset", known.begins_at),
        is_read_committed=text("share.isolation.level", "read_uncommitted") == "read_committed",
    )
