"""What `ottla groups` may do to a share group: `kick` nothing, `reset` and `delete --topic` only without members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli.failures import Failure
from ottla.cli.topics import NOT_DONE
from ottla.shown import counted

if TYPE_CHECKING:
    from ottla.client import Admin, GroupDescription


async def require_no_share_group(admin: Admin, group: GroupDescription | None) -> None:
    """Raise Failure if the group is a share group: Kafka has no request that removes its members."""
    from ottla.diagnosis.group_facts import is_share
    from ottla.diagnosis.share_facts import settings_of

    if is_share(group):
        settings = await settings_of(admin, group.group_id)
        raise Failure(
            f"{group.group_id} is a share group, and Kafka cannot remove members of share groups: stop the member. The "
            f"records of one that is dead are delivered to others after {settings.lock_ms / 1000:g} s "
            f"(share.record.lock.duration.ms); it is removed after {settings.session_ms / 1000:g} s "
            "(share.session.timeout.ms)"
        )


def require_no_members(group: GroupDescription) -> None:
    """Raise Failure if a share group has members: its state can be changed only without them."""
    if group.members:
        members = counted(len(group.members), "member")
        them = "it" if len(group.members) == 1 else "them"
        raise Failure(f"{group.group_id} is a share group with {members} ({group.state}): stop {them} before")


async def forget_topics(admin: Admin, group: GroupDescription, topics: Sequence[str], *, dry_run: bool) -> list[str]:
    """Let a share group forget where it is in topics, and return a line for each."""
    group_id = group.group_id
    chosen = [text for text in topics if ":" in text]
    if chosen:
        names = ", ".join(dict.fromkeys(text.partition(":")[0] for text in topics))
        raise Failure(f"{group_id} is a share group, which forgets whole topics: name {names} without partitions")
    offsets = (await admin.share_group_offsets({group_id: None}))[group_id]
    known = sorted({one.topic for one in offsets} & {*topics})
    if not known:
        raise Failure(f"{group_id} has not read {', '.join(topics)}")
    require_no_members(group)
    if dry_run:
        return [f"{group_id}: {name} can be forgotten{NOT_DONE}" for name in known]
    await admin.delete_share_group_offsets(group_id, known)
    return [f"{group_id}: forgot {name}" for name in known]
