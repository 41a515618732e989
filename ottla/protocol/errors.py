"""The errors between client and broker: Kafka's error codes, and the exceptions of the wire.

Names, codes and which of them a client may retry are those of Apache Kafka 4.4 (``Errors.java``); the messages are
Ottla's. There are three exceptions. `KafkaError` is a refusal with an error code. `MalformedMessage` means broken
bytes, and ends the connection. `UnencodableMessage` means a message that cannot be written, which is an error of the
caller.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """An error code of the protocol, with whether a retry may help, and a message."""

    retriable: bool
    """Whether Kafka's clients send the request again automatically."""
    message: str
    """The message: one sentence."""

    def __new__(cls, code: int, retriable: bool, message: str) -> ErrorCode:
        """Make the int that is sent, with its two attributes."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.message = message
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The member of a code from the wire; UNKNOWN_SERVER_ERROR for one that is newer than this table."""
        return _BY_CODE.get(code, cls.UNKNOWN_SERVER_ERROR)

    UNKNOWN_SERVER_ERROR = -1, False, "The broker failed unexpectedly; its log has the details."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The partition holds no record at this offset."
    CORRUPT_MESSAGE = 2, True, "The batch is damaged: its checksum, size or content is not what it should be."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This broker has no such topic or partition."
    INVALID_FETCH_SIZE = 4, False, "The requested fetch size is not allowed."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker does not lead the partition, or holds no replica of it."
    REQUEST_TIMED_OUT = 7, True, "The request was not finished within its time."
    BROKER_NOT_AVAILABLE = 8, False, "The broker cannot be reached."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica of the partition cannot be reached."
    MESSAGE_TOO_LARGE = 10, False, "The batch is larger than the broker or the topic accepts."
    STALE_CONTROLLER_EPOCH = 11, False, "Another controller has taken over."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata beside the committed offset is too long."
    NETWORK_EXCEPTION = 13, True, "The connection ended before the response came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "The coordinator cannot be reached."
    NOT_COORDINATOR = 16, True, "This broker is not the requested coordinator."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic name is not allowed, or the topic may not be used this way."
    RECORD_LIST_TOO_LARGE = 18, False, "The batch is larger than a segment of the log."
    NOT_ENOUGH_REPLICAS = 19, True, "Too few replicas are in sync; nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "The records were written, but too few replicas are in sync."
    INVALID_REQUIRED_ACKS = 21, False, "The value of acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, False, "The generation of the group is not the current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member and its group have no protocol in common."
    INVALID_GROUP_ID = 24, False, "The group id is not allowed."
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout is outside the range that the broker allows."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing; join it again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offset commit is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Access to the topic is denied."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Access to the group is denied."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "The operation on the cluster is denied."
    INVALID_TIMESTAMP = 32, False, "The timestamp of a record is outside the range that the topic accepts."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, False, "The request does not belong to this stage of the authentication."
    UNSUPPORTED_VERSION = 35, False, "This version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, False, "There is already a topic of this name."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not allowed."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The assignment of replicas is not possible."
    INVALID_CONFIG = 40, False, "The configuration is not valid."
    NOT_CONTROLLER = 41, True, "This node is not the active controller."
    INVALID_REQUEST = 42, False, "The request contradicts itself or breaks a rule of the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The format in which the records are stored cannot serve this request."
    POLICY_VIOLATION = 44, False, "A policy of the cluster forbids the request."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The sequence number does not follow the one before it."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The sequence number was used before."
    INVALID_PRODUCER_EPOCH = 47, False, "The producer's epoch is older than the one the broker knows."
    INVALID_TXN_STATE = 48, False, "The state of the transaction does not allow this operation."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is longer than the broker allows."
    CONCURRENT_TRANSACTIONS = 51, True, "Another operation on the same transaction is still under way."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "A newer transaction coordinator has taken over this producer."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Access to the transactional id is denied."
    SECURITY_DISABLED = 54, False, "The broker has no authorizer, so that there are no ACLs."
    OPERATION_NOT_ATTEMPTED = 55, False, "The operation was not tried, because another one of the request failed."
    KAFKA_STORAGE_ERROR = 56, True, "The disk failed or is full."
    LOG_DIR_NOT_FOUND = 57, False, "The log directory is not one of the broker's, or is offline."
    SASL_AUTHENTICATION_FAILED = 58, False, "The authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker has no state of this producer."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "The broker does not use delegation tokens."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The principal neither owns the delegation token nor may renew it."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "Only a client that has logged in, and not by a token, may ask for delegation tokens.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Access to the delegation token is denied."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "This type of principal is not supported."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The broker does not know this fetch session; begin a new one."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The epoch of the fetch session is not the expected one."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener with the name of the one that got the request."
    TOPIC_DELETION_DISABLED = 73, False, "The broker is configured not to delete topics."
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch of the request is older than the partition's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The leader epoch of the request is newer than the partition's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "The client's version of the API cannot carry this compression."
    STALE_BROKER_EPOCH = 77, False, "The epoch of the broker is not the current one."
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader does not know yet up to where records may be read."
    MEMBER_ID_REQUIRED = 79, False, "Join once more, with the member id of this response."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader cannot be reached."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has as many members as it may have."
    FENCED_INSTANCE_ID = 82, False, "Another member has registered with the same group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "None of the replicas that could lead the partition can be reached."
    ELECTION_NOT_NEEDED = 84, True, "The partition needs no election."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is subscribed to the topic, so that its offsets stay."
    INVALID_RECORD = 87, False, "A record was refused; the response says which and why."
    UNSTABLE_OFFSET_COMMIT = 88, True, "Offsets of an open transaction are pending."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The quota is used up; try later."
    PRODUCER_FENCED = 90, False, "A newer producer uses the same transactional id."
    RESOURCE_NOT_FOUND = 91, False, "The request names something that does not exist."
    DUPLICATE_RESOURCE = 92, False, "The request names the same thing twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the rules."
    INCONSISTENT_VOTER_SET = 94, False, "The sender or the receiver is not among the expected voters."
    INVALID_UPDATE_VERSION = 95, False, "The version of the update is not valid."
    FEATURE_UPDATE_FAILED = 96, False, "The features could not be changed."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The principal of a forwarded request cannot be read."
    SNAPSHOT_NOT_FOUND = 98, False, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, False, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This broker has no topic of this id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "Another broker uses this id."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker of this id is registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The topic id of the request is not that of the log."
    INCONSISTENT_CLUSTER_ID = 104, False, "The cluster id of the request is not that of this cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixes topic names and topic ids, or an id has changed."
    INELIGIBLE_REPLICA = 107, False, "A replica of the new ISR may not be in it."
    NEW_LEADER_ELECTED = 108, False, "The partition was changed, and has another leader now."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The records at this offset are in tiered storage."
    FENCED_MEMBER_EPOCH = 110, False, "The member's epoch is fenced; give up all partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, False, "The instance id is still used by another member of the group."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group does not support this assignor."
    STALE_MEMBER_EPOCH = 113, False, "The member's epoch is old; heartbeat for the new one."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request belongs to another type of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "This type of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no controller of this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The subscription id of the telemetry is not the current one."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, False, "The registration of the broker is not valid."
    TRANSACTION_ABORTABLE = 120, False, "The transaction failed; abort it to continue with this transactional id."
    INVALID_RECORD_STATE = 121, False, "The record cannot be acknowledged in the state it is in."
    SHARE_SESSION_NOT_FOUND = 122, True, "The broker does not know this share session."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The epoch of the share session is not the expected one."
    FENCED_STATE_EPOCH = 124, False, "The state epoch of the share group is not the current one."
    INVALID_VOTER_KEY = 125, False, "The voter key is not that of the replica that received it."
    DUPLICATE_VOTER = 126, False, "The voter is already one."
    VOTER_NOT_FOUND = 127, False, "There is no such voter."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, False, "The client's metadata is too old; begin again from the bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The epoch of the topology is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The epoch of the topology is old."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The broker has as many share sessions as it may have."
    GROUP_DELETION_FAILED = 134, False, "The group could not be deleted."
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, False, "The description of the topology could not be stored."
    CONTROLLER_ID_NOT_REGISTERED = 136, False, "No controller has registered with this id."


_BY_CODE = {int(code): code for code in ErrorCode}


class KafkaError(Exception):
    """A refusal that is sent as an error code."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        """`message` is text for the client; by default, and in place of an empty one, that of the code."""
        self.code = code
        self.message = message or code.message
        super().__init__(f"{code.name}: {self.message}")


class MalformedMessage(ValueError):
    """Malformed bytes from outside. Closes the connection on which they arrived."""


class UnencodableMessage(ValueError):
    """A message whose values do not fit its fields, or whose version lacks a field that is set."""
