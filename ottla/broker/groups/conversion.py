"""Groups change their protocol, classic to consumer and back, with or without members.

Surface first; the work follows in the next commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.groups.effects import Effects, Now

if TYPE_CHECKING:
    from ottla.broker.groups.classic import ClassicGroup
    from ottla.broker.groups.consumer import ConsumerGroup
    from ottla.broker.groups.settings import GroupSettings
    from ottla.broker.groups.topics import TopicView


def upgrade(
    classic: ClassicGroup, settings: GroupSettings, topics: TopicView, now: Now
) -> tuple[ConsumerGroup, Effects]:
    """A ConsumerGroupHeartbeat (member epoch 0) came to a classic group: make it a consumer group.

    An empty one is simply replaced. Raises KafkaError(GROUP_ID_NOT_FOUND) where the policy, the protocol type, the size
    or what the members said forbid it; nothing has changed then. The heartbeat goes to the new group afterwards, in the
    same step.
    """
    raise NotImplementedError


def downgrade(consumer: ConsumerGroup, now: Now) -> tuple[ClassicGroup, Effects]:
    """The group that takes the place of `consumer`, whose `downgrade` a step has set."""
    raise NotImplementedError
