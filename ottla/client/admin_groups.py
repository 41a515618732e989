"""The part of an Admin that handles groups and their committed offsets.

Requests about a group go to its coordinator, together for all groups of a coordinator. A refusal for one group is
reported by name in an `AdminError`; the rest is done.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ottla.client.admin_client import AdminClient
from ottla.client.admin_group_results import GroupDescription, GroupListing
from ottla.client.admin_results import AdminError
from ottla.client.coordinator import KeyType, find_coordinator
from ottla.client.errors import KafkaError, UnsupportedByBroker, is_worth_retrying
from ottla.client.groups.commits import (
    LAST_COMMIT_VERSION_WITH_NAMES,
    LAST_FETCH_VERSION_WITH_NAMES,
    offset_fetch_request,
    read_offset_fetch,
)
from ottla.client.groups.description import describe_classic, describe_consumer
from ottla.client.groups.removal import remove_members
from ottla.client.structs import OffsetAndMetadata, TopicPartition, as_names
from ottla.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.errors import ErrorCode

T = TypeVar("T")
Outcomes = dict[str, "T | KafkaError"]
"""The result of each group, or its error."""

_FIRST_LIST_VERSION_WITH_STATES = 4
_FIRST_LIST_VERSION_WITH_TYPES = 5
_FIRST_FETCH_VERSION_WITH_GROUPS = 8
_DEAD = "Dead"


class GroupAdmin(AdminClient):
    """See the module; `Admin` is the class for programs."""

    # Groups -----------------------------------------------------------------------------------------------------

    async def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """Return the groups of all brokers, sorted by name; only those in one of `states` and `types`, if given.

        States and types have Kafka's names ("Stable", "Empty", "classic", "consumer"); case does not matter. Raises
        UnsupportedByBroker when the broker is too old for such a filter.
        """
        cluster = self._started()
        wanted_states, wanted_types = as_names(states), as_names(types)

        async def ask(node_id: int) -> list[GroupListing]:
            connection = await cluster.connection(node_id)
            version = connection.version_for(ListGroupsRequest)
            for wanted, first in (
                (wanted_states, _FIRST_LIST_VERSION_WITH_STATES),
                (wanted_types, _FIRST_LIST_VERSION_WITH_TYPES),
            ):
                if wanted and version < first:
                    raise UnsupportedByBroker(f"the broker at {connection.address} is too old to choose among groups")
            request = ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_types)
            answer = await connection.send(request, ListGroupsResponse, version)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code))
            return [
                GroupListing(entry.group_id, entry.protocol_type, entry.group_state, entry.group_type.lower())
                for entry in answer.groups
            ]

        async def attempt() -> list[list[GroupListing]]:
            if not cluster.brokers:
                await cluster.refresh()
            return await asyncio.gather(*(ask(node_id) for node_id in cluster.brokers))

        listed = await cluster.retry(attempt, self._timeout_ms)
        return sorted((one for some in listed for one in some), key=lambda one: one.group_id)

    async def describe_groups(self, group_ids: Sequence[str]) -> dict[str, GroupDescription]:
        """Return groups with their members; raises AdminError by group, GROUP_ID_NOT_FOUND for an unknown one."""

        async def ask(node_id: int, asked: list[str]) -> Outcomes[GroupDescription]:
            found = await self._describe_consumer_groups(node_id, asked)
            rest = [group_id for group_id in asked if group_id not in found]
            return {**found, **(await self._describe_classic_groups(node_id, rest) if rest else {})}

        return await self._of_each_group(group_ids, ask)

    async def delete_groups(self, group_ids: Sequence[str]) -> None:
        """Delete groups with their committed offsets; raises AdminError by group, NON_EMPTY_GROUP for one in use."""

        async def ask(node_id: int, asked: list[str]) -> Outcomes[None]:
            answer = await self._started().ask(node_id, DeleteGroupsRequest(groups_names=asked), DeleteGroupsResponse)
            return {entry.group_id: _error(entry.error_code, entry.error_message) for entry in answer.results}

        await self._of_each_group(group_ids, ask)

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[str] | None = None,
        *,
        reason: str = "removed by an administrator",
    ) -> list[str]:
        """Remove members from a group, by member id or instance id; None: all. Returns the ids of those removed.

        Their partitions are assigned to other members immediately. A consumer that still runs joins again by itself.
        Raises AdminError by member, UNKNOWN_MEMBER_ID for one that is not in the group.
        """
        group = (await self.describe_groups([group_id]))[group_id]
        by_name = {member.member_id: member for member in group.members}
        by_name |= {member.group_instance_id: member for member in group.members if member.group_instance_id}
        names = [member.member_id for member in group.members] if members is None else as_names(members)
        refused = {name: KafkaError(ErrorCode.UNKNOWN_MEMBER_ID) for name in names if name not in by_name}
        chosen = list({by_name[name].member_id: by_name[name] for name in names if name in by_name}.values())
        refused |= await remove_members(self._started(), group_id, chosen, reason, self._timeout_ms)
        if refused:
            raise AdminError(refused)
        return [member.member_id for member in chosen]

    # Committed offsets ------------------------------------------------------------------------------------------

    async def list_group_offsets(
        self, wanted: Mapping[str, Iterable[TopicPartition] | None], *, require_stable: bool = False
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the committed offsets of groups, for some partitions of each or (None) for all.

        A partition without a committed offset is left out; a group that does not exist has none. With `require_stable`
        this waits while an open transaction may commit other offsets. Raises AdminError by group.
        """
        cluster = self._started()
        asked_for = {
            group_id: None if some is None else [TopicPartition(*one) for one in some]
            for group_id, some in wanted.items()
        }

        async def ask(node_id: int, asked: list[str]) -> Outcomes[dict[TopicPartition, OffsetAndMetadata]]:
            connection = await cluster.connection(node_id)
            version = connection.version_for(OffsetFetchRequest, LAST_FETCH_VERSION_WITH_NAMES)
            step = len(asked) if version >= _FIRST_FETCH_VERSION_WITH_GROUPS else 1
            outcomes: Outcomes[dict[TopicPartition, OffsetAndMetadata]] = {}
            for start in range(0, len(asked), step):
                some = {group_id: asked_for[group_id] for group_id in asked[start : start + step]}
                request = offset_fetch_request(version, some, require_stable=require_stable)
                answer = await connection.send(request, OffsetFetchResponse, version)
                for group_id in some:
                    code, found, refused = read_offset_fetch(answer, version, group_id)
                    code = code or next(iter(refused.values()), ErrorCode.NONE)
                    outcomes[group_id] = KafkaError(code) if code else found
            return outcomes

        return await self._of_each_group(list(asked_for), ask)

    async def find_unstable_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """Return, sorted, those partitions whose committed offset an open transaction may change.

        A consumer that begins there waits for the end of the transaction (KIP-447); this method does not wait. Raises
        AdminError by group.
        """
        wanted = {group_id: [TopicPartition(*one) for one in partitions]}

        async def ask(node_id: int, asked: list[str]) -> Outcomes[list[TopicPartition]]:
            connection = await self._started().connection(node_id)
            version = connection.version_for(OffsetFetchRequest, LAST_FETCH_VERSION_WITH_NAMES)
            answer = await connection.send(offset_fetch_request(version, wanted), OffsetFetchResponse, version)
            code, _, refused = read_offset_fetch(answer, version, group_id)
            found = sorted(one for one, why in refused.items() if why is ErrorCode.UNSTABLE_OFFSET_COMMIT)
            return {group_id: KafkaError(code) if code else found}

        return (await self._of_each_group([group_id], ask))[group_id]

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Set where a group continues to read, replacing its committed offsets. The group must have no members.

        Raises AdminError by `topic-partition`; UNKNOWN_MEMBER_ID means that the group has members.
        """
        by_topic: dict[str, list[OffsetCommitRequest.OffsetCommitRequestPartition]] = defaultdict(list)
        for (topic, index), given in offsets.items():
            offset = OffsetAndMetadata(given) if isinstance(given, int) else given
            by_topic[topic].append(
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=group_id,
            member_id="",
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
        )

        async def attempt() -> dict[str, KafkaError]:
            node_id = await find_coordinator(self._started(), group_id)
            answer = await self._started().ask(
                node_id, request, OffsetCommitResponse, at_most=LAST_COMMIT_VERSION_WITH_NAMES
            )
            return _partition_errors(
                (t.name, p.partition_index, p.error_code) for t in answer.topics for p in t.partitions
            )

        await self._of_partitions(attempt)

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete a group's committed offsets of partitions; raises AdminError by `topic-partition`.

        GROUP_SUBSCRIBED_TO_TOPIC means that a member reads the topic. A refusal of the whole group is a KafkaError.
        """
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, index in partitions:
            by_topic[topic].append(index)
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                    ],
                )
                for topic, indexes in by_topic.items()
            ],
        )

        async def attempt() -> dict[str, KafkaError]:
            node_id = await find_coordinator(self._started(), group_id)
            answer = await self._started().ask(node_id, request, OffsetDeleteResponse)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code))
            return _partition_errors(
                (t.name, p.partition_index, p.error_code) for t in answer.topics for p in t.partitions
            )

        await self._of_partitions(attempt)

    # Inside -----------------------------------------------------------------------------------------------------

    async def _of_each_group(
        self,
        group_ids: Sequence[str],
        ask: Callable[[int, list[str]], Awaitable[Outcomes[T]]],
        kind: KeyType = KeyType.GROUP,
    ) -> dict[str, T]:
        """Ask each coordinator about its groups, and retry transient errors; raise AdminError with the refusals. Use
        another `kind` for transactional ids.
        """
        cluster = self._started()
        group_ids = as_names(group_ids)
        outcomes: Outcomes[T] = {}

        async def attempt() -> None:
            missing = [group_id for group_id in dict.fromkeys(group_ids) if group_id not in outcomes]
            nodes = await asyncio.gather(*(find_coordinator(cluster, group_id, kind) for group_id in missing))
            by_node: dict[int, list[str]] = defaultdict(list)
            for group_id, node_id in zip(missing, nodes, strict=True):
                by_node[node_id].append(group_id)
            passing: KafkaError | None = None
            for answers in await asyncio.gather(*(ask(node_id, asked) for node_id, asked in by_node.items())):
                for group_id, outcome in answers.items():
                    if isinstance(outcome, KafkaError) and is_worth_retrying(outcome):
                        passing = outcome
                    else:
                        outcomes[group_id] = outcome
            if passing is not None:
                raise passing

        if group_ids:
            await cluster.retry(attempt, self._timeout_ms)
        refused = {group_id: outcome for group_id, outcome in outcomes.items() if isinstance(outcome, KafkaError)}
        if refused:
            raise AdminError(refused)
        return {group_id: outcome for group_id, outcome in outcomes.items() if not isinstance(outcome, KafkaError)}

    async def _of_partitions(self, attempt: Callable[[], Awaitable[dict[str, KafkaError]]]) -> None:
        """Change offsets, and retry transient errors; raise AdminError with the refusals."""

        async def until_it_passes() -> dict[str, KafkaError]:
            refused = await attempt()
            for error in refused.values():
                if error.code in PASSING:
                    raise error
            return refused

        refused = await self._started().retry(until_it_passes, self._timeout_ms)
        if refused:
            raise AdminError(refused)

    async def _describe_consumer_groups(self, node_id: int, asked: list[str]) -> Outcomes[GroupDescription]:
        """Describe the groups of the consumer protocol; none if the broker does not know it."""
        cluster = self._started()
        request = ConsumerGroupDescribeRequest(group_ids=asked, include_authorized_operations=False)
        try:
            answer = await cluster.ask(node_id, request, ConsumerGroupDescribeResponse)
        except UnsupportedByBroker:
            return {}
        outcomes: Outcomes[GroupDescription] = {}
        for entry in answer.groups:
            code = ErrorCode.of(entry.error_code)
            if code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                continue
            described = describe_consumer(entry, cluster.brokers[node_id])
            outcomes[entry.group_id] = KafkaError(code, entry.error_message) if code else described
        return outcomes

    async def _describe_classic_groups(self, node_id: int, asked: list[str]) -> Outcomes[GroupDescription]:
        cluster = self._started()
        answer = await cluster.ask(node_id, DescribeGroupsRequest(groups=asked), DescribeGroupsResponse)
        outcomes: Outcomes[GroupDescription] = {}
        for entry in answer.groups:
            code = ErrorCode.of(entry.error_code)
            if not code and entry.group_state == _DEAD:
                code = ErrorCode.GROUP_ID_NOT_FOUND  # as brokers report it before version 6
            described = describe_classic(entry, cluster.brokers[node_id])
            outcomes[entry.group_id] = KafkaError(code, entry.error_message) if code else described
        return outcomes


PASSING = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Errors that pass as soon as the group's coordinator is found."""


def _error(code: int, message: str | None = None) -> KafkaError | None:
    return KafkaError(ErrorCode.of(code), message or None) if code else None


def _partition_errors(entries: Iterable[tuple[str, int, int]]) -> dict[str, KafkaError]:
    return {f"{topic}-{index}": KafkaError(ErrorCode.of(code)) for topic, index, code in entries if code}
