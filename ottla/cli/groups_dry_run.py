"""`--dry-run` of `ottla groups kick` and `ottla groups delete`: what would be done, or the refusal that would come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.cli.topics import NOT_DONE
from ottla.shown import counted

if TYPE_CHECKING:
    from ottla.client import Admin, AdminError, GroupDescription, MemberDescription, TopicPartition


async def members_to_kick(admin: Admin, group_id: str, members: Sequence[str] | None) -> list[str]:
    """A line for each member that would be removed, by member id or instance id; None: all. Raises AdminError as
    `remove_members` does.
    """
    from ottla.client import AdminError, ErrorCode, KafkaError

    group = (await admin.describe_groups([group_id]))[group_id]
    by_name = {member.member_id: member for member in group.members}
    by_name |= {member.group_instance_id: member for member in group.members if member.group_instance_id}
    names = [member.member_id for member in group.members] if members is None else members
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise AdminError({name: KafkaError(ErrorCode.UNKNOWN_MEMBER_ID) for name in unknown})
    return list(dict.fromkeys(_kick_line(by_name[name]) for name in names))


def _kick_line(member: MemberDescription) -> str:
    owned = counted(len(member.assignment), "partition")
    return f"{member.member_id} can be removed: {member.client_id} at {member.host.lstrip('/')}, {owned}{NOT_DONE}"


async def groups_to_delete(admin: Admin, group_ids: Iterable[str]) -> tuple[list[str], AdminError | None]:
    """A line for each group that would be deleted, and the refusals of the others."""
    from ottla.client import AdminError, ErrorCode, KafkaError
    from ottla.diagnosis.group_facts import describe_if_there, is_share

    lines: list[str] = []
    refused: dict[str, KafkaError] = {}
    for group_id in dict.fromkeys(group_ids):
        group = await describe_if_there(admin, group_id)
        if group is not None and group.members:
            refused[group_id] = KafkaError(ErrorCode.NON_EMPTY_GROUP)
            continue
        if is_share(group):
            offsets = (await admin.share_group_offsets({group_id: None}))[group_id]
            lines.append(f"{group_id} can be deleted: state of {counted(len(offsets), 'partition')}{NOT_DONE}")
            continue
        committed = (await admin.list_group_offsets({group_id: None}))[group_id]
        if group is None and not committed:
            refused[group_id] = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        else:
            words = f"committed offsets of {counted(len(committed), 'partition')}"
            lines.append(f"{group_id} can be deleted: {words}{NOT_DONE}")
    return lines, AdminError(refused) if refused else None


async def offsets_to_delete(admin: Admin, group_id: str, partitions: Iterable[TopicPartition]) -> list[str]:
    """A line for each committed offset that would be deleted. Raises AdminError as `delete_group_offsets` does."""
    from ottla.client import AdminError, ErrorCode, KafkaError
    from ottla.diagnosis.group_facts import describe_if_there

    read = _topics_of(await describe_if_there(admin, group_id))
    names = [(one, f"{one.topic}-{one.partition}") for one in sorted(partitions)]
    refused = {name: KafkaError(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) for one, name in names if one.topic in read}
    if refused:
        raise AdminError(refused)
    return [f"{group_id}: {name} can be forgotten{NOT_DONE}" for _, name in names]


def _topics_of(group: GroupDescription | None) -> set[str]:
    """The topics that members subscribe to or have partitions of."""
    members = group.members if group is not None else []
    return {topic for one in members for topic in (*one.topics, *(owned.topic for owned in one.assignment))}
