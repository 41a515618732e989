"""CreateTopics (key 19), versions 0-7: create topics, or only check whether they could be created.

Each topic succeeds or fails by itself. `num_partitions` and `replication_factor` are -1 if `assignments` are set, or,
from version 4 on, for the broker's defaults (KIP-464).

Versions: 1 has `validate_only` and error messages · 2 the throttle time · 4 the defaults · 5 is flexible and returns
the configuration (KIP-525) · 6 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599) · 7 returns the topic id. Versions
0-1 ended with Apache Kafka 4.0; clients of 0.10 have no others.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since, tagged
from ottla.protocol.types import ZERO_UUID, Bool, Int8, Int16, Int32, NullableString, String, Uuid


class CreateTopicsRequest(Request, key=19, versions="0-7", flexible="5+"):
    """The topics to create; `validate_only` creates none."""

    class CreatableReplicaAssignment(Struct):
        """The brokers of one partition, the preferred leader first."""

        partition_index: Int32
        broker_ids: list[Int32]

    class CreatableTopicConfig(Struct):
        """A configuration of the topic; a null `value` means the default."""

        name: String
        value: NullableString

    class CreatableTopic(Struct):
        """One topic to create."""

        name: String
        num_partitions: Int32
        replication_factor: Int16
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment]
        configs: list[CreateTopicsRequest.CreatableTopicConfig]

    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: Bool = since("1+", default=False)


class CreateTopicsResponse(Response, key=19, versions="0-7", flexible="5+"):
    """The result for each topic."""

    class CreatableTopicConfigs(Struct):
        """A configuration of the new topic. `config_source` as in DescribeConfigs."""

        name: String
        value: NullableString
        read_only: Bool
        config_source: Int8 = -1
        is_sensitive: Bool

    class CreatableTopicResult(Struct):
        """One topic.

        `topic_config_error_code` is set, and `configs` null, if the client may not see the configuration.
        """

        name: String
        topic_id: Uuid = since("7+", default=ZERO_UUID, ignorable=True)
        error_code: Int16 = 0
        error_message: NullableString = since("1+", default=None, ignorable=True)
        topic_config_error_code: Int16 = tagged(0, "5+", default=0, ignorable=True)
        num_partitions: Int32 = since("5+", default=-1, ignorable=True)
        replication_factor: Int16 = since("5+", default=-1, ignorable=True)
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = since("5+", factory=list, ignorable=True)

    throttle_time_ms: Int32 = since("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult]


def refused(request: CreateTopicsRequest, version: int, code: ErrorCode, message: str) -> CreateTopicsResponse:
    """Refuse every topic of the request."""
    return CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )
