"""The part of an Admin that handles streams groups: the groups of Kafka Streams applications (KIP-1071).

They are listed and deleted as all groups are, and their committed offsets are those of any group (`GroupAdmin`). What
they have beside is a topology, and members that run its tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.client.admin_group_results import GroupDescription
from ottla.client.admin_groups import Outcomes
from ottla.client.admin_share_groups import ShareGroupAdmin
from ottla.client.errors import KafkaError
from ottla.client.groups.streams_description import describe_streams
from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from ottla.protocol.errors import ErrorCode


class StreamsGroupAdmin(ShareGroupAdmin):
    """See the module; `Admin` is the class for programs."""

    # Streams groups ---------------------------------------------------------------------------------------------

    async def describe_streams_groups(self, group_ids: Sequence[str]) -> dict[str, GroupDescription]:
        """Return streams groups with their topology, and their members with the tasks that they run.

        Raises AdminError by group, GROUP_ID_NOT_FOUND for a group that does not exist or is not a streams group.
        """

        async def ask(node_id: int, asked: list[str]) -> Outcomes[GroupDescription]:
            cluster = self._started()
            request = StreamsGroupDescribeRequest(group_ids=asked, include_authorized_operations=False)
            answer = await cluster.ask(node_id, request, StreamsGroupDescribeResponse)
            return {
                entry.group_id: KafkaError(ErrorCode.of(entry.error_code), entry.error_message)
                if entry.error_code
                else describe_streams(entry, cluster.brokers[node_id])
                for entry in answer.groups
            }

        return await self._of_each_group(group_ids, ask)
