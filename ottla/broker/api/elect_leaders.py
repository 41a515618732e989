"""ElectLeaders (key 43), versions 0-2: elect another leader for partitions. There is one broker, which is the leader.

So each partition that exists is ELECTION_NOT_NEEDED. Null asks for all that need an election, of which there are none:
as in Kafka every topic is returned then, without partitions. An empty list asks for nothing, whatever the type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.catalog.topic import Topic
    from ottla.broker.context import Context

PREFERRED, UNCLEAN = 0, 1

NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER),)
CHUNKS = (Chunks(("topic_partitions", "partitions"), ("replica_election_results", "partition_result")),)


def handle(request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    """Answer immediately."""
    topics = context.services.catalog.topics
    if request.topic_partitions == []:
        return ElectLeadersResponse(replica_election_results=[])
    if request.election_type not in (PREFERRED, UNCLEAN):
        return _refused(request)
    if request.topic_partitions is None:
        return ElectLeadersResponse(replica_election_results=[_answer(name, []) for name in topics])
    return ElectLeadersResponse(
        replica_election_results=[
            _answer(asked.topic, [_elect(asked.topic, topics.get(asked.topic), index) for index in asked.partitions])
            for asked in request.topic_partitions
        ]
    )


def _elect(name: str, topic: Topic | None, index: int) -> ElectLeadersResponse.PartitionResult:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        message = f"No such topic as {name}"
    elif not 0 <= index < len(topic.partitions):
        message = f"No such partition as {name}-{index}"
    else:
        code = ErrorCode.ELECTION_NOT_NEEDED
        message = "Leader election not needed for topic partition."
    return ElectLeadersResponse.PartitionResult(partition_id=index, error_code=code, error_message=message)


def _refused(request: ElectLeadersRequest) -> ElectLeadersResponse:
    code, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            _answer(
                asked.topic,
                [
                    ElectLeadersResponse.PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ],
    )


def _answer(
    topic: str, results: list[ElectLeadersResponse.PartitionResult]
) -> ElectLeadersResponse.ReplicaElectionResult:
    return ElectLeadersResponse.ReplicaElectionResult(topic=topic, partition_result=results)
