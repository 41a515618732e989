"""The part of an Admin that handles share groups: their members, and where they are in their partitions (KIP-932).

They are listed and deleted as all groups are (`GroupAdmin`). A share group commits no offsets: each of its partitions
has a start offset, before which every record is done, and a lag, the records that are not done yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ottla.client.admin_client import refusals
from ottla.client.admin_group_results import GroupDescription, ShareGroupOffset
from ottla.client.admin_groups import PASSING, GroupAdmin, Outcomes
from ottla.client.admin_results import AdminError
from ottla.client.coordinator import find_coordinator
from ottla.client.errors import KafkaError
from ottla.client.groups.description import describe_share
from ottla.client.structs import TopicPartition, as_names
from ottla.protocol.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from ottla.protocol.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from ottla.protocol.api.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from ottla.protocol.errors import ErrorCode

_Offsets = tuple[dict[TopicPartition, ShareGroupOffset | None], dict[str, KafkaError]]
"""The offsets of a group, and the errors of its partitions by `topic-partition`."""


class ShareGroupAdmin(GroupAdmin):
    """See the module; `Admin` is the class for programs."""

    # Share groups -----------------------------------------------------------------------------------------------

    async def describe_share_groups(self, group_ids: Sequence[str]) -> dict[str, GroupDescription]:
        """Return share groups with their members; several members may have the same partition.

        Raises AdminError by group, GROUP_ID_NOT_FOUND for a group that does not exist or is not a share group.
        """

        async def ask(node_id: int, asked: list[str]) -> Outcomes[GroupDescription]:
            cluster = self._started()
            request = ShareGroupDescribeRequest(group_ids=asked, include_authorized_operations=False)
            answer = await cluster.ask(node_id, request, ShareGroupDescribeResponse)
            return {
                entry.group_id: KafkaError(ErrorCode.of(entry.error_code), entry.error_message)
                if entry.error_code
                else describe_share(entry, cluster.brokers[node_id])
                for entry in answer.groups
            }

        return await self._of_each_group(group_ids, ask)

    async def share_group_offsets(
        self, wanted: Mapping[str, Iterable[TopicPartition] | None]
    ) -> dict[str, dict[TopicPartition, ShareGroupOffset | None]]:
        """Return where share groups are, in some partitions of each or (None) in all that they have.

        A partition without a start offset is None: no member has read it yet, nothing of it is acknowledged yet (with
        Kafka), or it does not exist. A group that does not exist has none: no broker, also none of Kafka, reports that
        as an error here; `describe_share_groups` raises GROUP_ID_NOT_FOUND. Raises AdminError by group, and by
        `topic-partition` for partitions that cannot be described.
        """
        asked_for = {
            group_id: None if some is None else _by_topic(TopicPartition(*one) for one in some)
            for group_id, some in wanted.items()
        }
        group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
        topic = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic

        async def ask(node_id: int, asked: list[str]) -> Outcomes[_Offsets]:
            request = DescribeShareGroupOffsetsRequest(groups=[])
            for group_id in asked:
                some = asked_for[group_id]
                topics = None if some is None else [topic(topic_name=n, partitions=p) for n, p in some.items()]
                request.groups.append(group(group_id=group_id, topics=topics))
            answer = await self._started().ask(node_id, request, DescribeShareGroupOffsetsResponse)
            return {entry.group_id: _offsets(entry, asked_for.get(entry.group_id) is None) for entry in answer.groups}

        answers = await self._of_each_group(list(asked_for), ask)
        refused = {name: error for _, errors in answers.values() for name, error in errors.items()}
        if refused:
            raise AdminError(refused)
        return {group_id: found for group_id, (found, _) in answers.items()}

    async def alter_share_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the start offsets of a share group without members, or of a new one: it delivers all records after them.

        Brokers, also Kafka's, accept an offset past the end of the log: what is written before it is never delivered.
        `list_offsets` has the ends (`ottla groups reset` goes no further). Kafka takes a negative offset for none, and
        Ottla refuses it with INVALID_REQUEST.

        Raises AdminError by `topic-partition`; a refusal of the whole group is a KafkaError: NON_EMPTY_GROUP for one
        with members, GROUP_ID_NOT_FOUND for one that is no share group.
        """
        by_topic: dict[str, list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition]]
        by_topic = defaultdict(list)
        for (name, index), offset in offsets.items():
            by_topic[name].append(
                AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(
                    partition_index=index, start_offset=offset
                )
            )
        request = AlterShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[
                AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
                for name, partitions in by_topic.items()
            ],
        )

        async def attempt() -> dict[str, KafkaError]:
            node_id = await find_coordinator(self._started(), group_id)
            answer = await self._started().ask(node_id, request, AlterShareGroupOffsetsResponse)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code), answer.error_message)
            return refusals(
                (f"{topic.topic_name}-{one.partition_index}", one.error_code, one.error_message)
                for topic in answer.responses
                for one in topic.partitions
            )

        await self._of_partitions(attempt)

    async def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Let a share group without members forget where it is in topics.

        Raises AdminError by topic; a refusal of the whole group is a KafkaError: GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP
        for a group with members.
        """
        topic = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
        named = [topic(topic_name=name) for name in dict.fromkeys(as_names(topics))]
        request = DeleteShareGroupOffsetsRequest(group_id=group_id, topics=named)

        async def attempt() -> dict[str, KafkaError]:
            node_id = await find_coordinator(self._started(), group_id)
            answer = await self._started().ask(node_id, request, DeleteShareGroupOffsetsResponse)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code), answer.error_message)
            return refusals((one.topic_name, one.error_code, one.error_message) for one in answer.responses)

        await self._of_partitions(attempt)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(index)
    return by_topic


def _offsets(
    entry: DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup, all_were_asked: bool
) -> _Offsets | KafkaError:
    """The offsets of a group, and the refused partitions, without those that do not exist any more if all were asked.

    An error that passes is one of the whole group.
    """
    if entry.error_code:
        return KafkaError(ErrorCode.of(entry.error_code), entry.error_message)
    found: dict[TopicPartition, ShareGroupOffset | None] = {}
    refused: dict[str, KafkaError] = {}
    for topic in entry.topics:
        for one in topic.partitions:
            error = KafkaError(ErrorCode.of(one.error_code), one.error_message)
            if error.code in PASSING:
                return error
            if not one.error_code:
                lag = one.lag if one.lag >= 0 else None
                offset = ShareGroupOffset(one.start_offset, lag, one.leader_epoch) if one.start_offset >= 0 else None
                found[TopicPartition(topic.topic_name, one.partition_index)] = offset
            elif not (all_were_asked and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                refused[f"{topic.topic_name}-{one.partition_index}"] = error
    return found, refused
