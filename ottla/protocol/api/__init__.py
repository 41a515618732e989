"""The APIs of Ottla: one module per API, with its request, its response and its error response.

The broker looks requests up in `REGISTRY`, and decides which versions it advertises to which client. The module of an
API is imported when its messages are first used: a broker that starts needs four of fifty.

To add an API: its lines in `ApiKey` and `VERSIONS`, and its module here, named as the line, with

    class <Name>Request(Request, key=..., versions=...)
    class <Name>Response(Response, key=..., versions=...)
    def refused(request, version, code, message) -> <Name>Response     (None where there is no error response)

`refused` is Kafka's `AbstractRequest.getErrorResponse`: the response when the whole request is refused. The code is at
the top of the response if there is such a field, and otherwise in every item of the request. Handlers refuse single
items themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.versions import NO_VERSION, UNBOUNDED, parse_versions

if TYPE_CHECKING:
    from ottla.protocol.message import Request, Response


class ApiKey(IntEnum):
    """The declared APIs, with Kafka's names and keys; the module of each has its name in lower case."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93


VERSIONS: dict[ApiKey, tuple[str, str]] = {
    ApiKey.PRODUCE: ("0-13", "9+"),
    ApiKey.FETCH: ("0-18", "12+"),
    ApiKey.LIST_OFFSETS: ("0-11", "6+"),
    ApiKey.METADATA: ("0-13", "9+"),
    ApiKey.OFFSET_COMMIT: ("0-10", "8+"),
    ApiKey.OFFSET_FETCH: ("0-10", "6+"),
    ApiKey.FIND_COORDINATOR: ("0-6", "3+"),
    ApiKey.JOIN_GROUP: ("0-9", "6+"),
    ApiKey.HEARTBEAT: ("0-4", "4+"),
    ApiKey.LEAVE_GROUP: ("0-5", "4+"),
    ApiKey.SYNC_GROUP: ("0-5", "4+"),
    ApiKey.DESCRIBE_GROUPS: ("0-6", "5+"),
    ApiKey.LIST_GROUPS: ("0-5", "3+"),
    ApiKey.SASL_HANDSHAKE: ("0-1", "none"),
    ApiKey.API_VERSIONS: ("0-5", "3+"),
    ApiKey.CREATE_TOPICS: ("0-7", "5+"),
    ApiKey.DELETE_TOPICS: ("0-6", "4+"),
    ApiKey.DELETE_RECORDS: ("0-2", "2+"),
    ApiKey.INIT_PRODUCER_ID: ("0-5", "2+"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("2-4", "4+"),
    ApiKey.ADD_PARTITIONS_TO_TXN: ("0-5", "3+"),
    ApiKey.ADD_OFFSETS_TO_TXN: ("0-4", "3+"),
    ApiKey.END_TXN: ("0-5", "3+"),
    ApiKey.WRITE_TXN_MARKERS: ("1-2", "1+"),
    ApiKey.TXN_OFFSET_COMMIT: ("0-6", "3+"),
    ApiKey.DESCRIBE_ACLS: ("0-3", "2+"),
    ApiKey.CREATE_ACLS: ("0-3", "2+"),
    ApiKey.DELETE_ACLS: ("0-3", "2+"),
    ApiKey.DESCRIBE_CONFIGS: ("0-4", "4+"),
    ApiKey.ALTER_CONFIGS: ("0-2", "2+"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ("1-2", "2+"),
    ApiKey.DESCRIBE_LOG_DIRS: ("0-5", "2+"),
    ApiKey.SASL_AUTHENTICATE: ("0-2", "2+"),
    ApiKey.CREATE_PARTITIONS: ("0-3", "2+"),
    ApiKey.CREATE_DELEGATION_TOKEN: ("1-3", "2+"),
    ApiKey.RENEW_DELEGATION_TOKEN: ("1-2", "2+"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ("1-2", "2+"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ("1-3", "2+"),
    ApiKey.DELETE_GROUPS: ("0-3", "2+"),
    ApiKey.ELECT_LEADERS: ("0-2", "2+"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("0-1", "1+"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("0-1", "0+"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ("0", "0+"),
    ApiKey.OFFSET_DELETE: ("0", "none"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ("0-1", "1+"),
    ApiKey.ALTER_CLIENT_QUOTAS: ("0-1", "1+"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ("0", "0+"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ("0", "0+"),
    ApiKey.DESCRIBE_QUORUM: ("0-2", "0+"),
    ApiKey.UPDATE_FEATURES: ("0-2", "0+"),
    ApiKey.DESCRIBE_CLUSTER: ("0-2", "0+"),
    ApiKey.DESCRIBE_PRODUCERS: ("0", "0+"),
    ApiKey.UNREGISTER_BROKER: ("0", "0+"),
    ApiKey.DESCRIBE_TRANSACTIONS: ("0", "0+"),
    ApiKey.LIST_TRANSACTIONS: ("0-2", "0+"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ("0-1", "0+"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("0-1", "0+"),
    ApiKey.LIST_CONFIG_RESOURCES: ("0-1", "0+"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ("0", "0+"),
    ApiKey.SHARE_GROUP_HEARTBEAT: ("1", "0+"),
    ApiKey.SHARE_GROUP_DESCRIBE: ("1", "0+"),
    ApiKey.SHARE_FETCH: ("1-2", "0+"),
    ApiKey.SHARE_ACKNOWLEDGE: ("1-2", "0+"),
    ApiKey.STREAMS_GROUP_HEARTBEAT: ("0-1", "0+"),
    ApiKey.STREAMS_GROUP_DESCRIBE: ("0-1", "0+"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ("0-1", "0+"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ("0", "0+"),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ("0", "0+"),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: ("0", "0+"),
}
"""The versions of each API, and those with compact lengths, as declared by both of its messages."""


class Api:
    """One API: its key, Kafka's name, its versions, its two messages and its error response. The first access to one of
    the last three imports the API's module, and raises the errors of the import.
    """

    __slots__ = ("flexible_from", "key", "max_version", "min_version", "name", "refused", "request", "response")

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    """The first version with compact lengths, tagged fields and the longer headers; `UNBOUNDED` if there is none."""
    request: type[Request]
    response: type[Response]
    refused: Callable[[Any, int, ErrorCode, str], Response | None]
    """Returns the response that refuses a whole request, given the request, its version, the code and a message."""

    def __init__(self, key: ApiKey, versions: str, flexible: str) -> None:
        self.key = key
        self.name = "".join(word.capitalize() for word in key.name.split("_"))
        self.min_version, self.max_version = parse_versions(versions)
        flexible_versions = parse_versions(flexible)
        self.flexible_from = UNBOUNDED if flexible_versions == NO_VERSION else flexible_versions.first

    if not TYPE_CHECKING:

        def __getattr__(self, attribute: str) -> object:
            """Called only for the slots that `_load` has not filled yet."""
            if attribute not in ("request", "response", "refused"):
                raise AttributeError(attribute)
            self._load()
            return getattr(self, attribute)

    def __repr__(self) -> str:
        return f"Api({self.name})"

    def _load(self) -> None:
        """Import the module that declares the messages. Raises TypeError if it declares other versions."""
        module = import_module(f"{__name__}.{self.key.name.lower()}")
        request: type[Request] = getattr(module, f"{self.name}Request")
        response: type[Response] = getattr(module, f"{self.name}Response")
        versions, flexible = VERSIONS[self.key]
        declared = (self.key, parse_versions(versions), parse_versions(flexible))
        for message in (request, response):
            if (message.message_key, message.message_versions, message.flexible_versions) != declared:
                raise TypeError(f"{message.__name__}: its key or versions are not those of protocol/api/__init__.py")
        self.request, self.response, self.refused = request, response, module.refused


REGISTRY: dict[int, Api] = {key: Api(key, *VERSIONS[key]) for key in ApiKey}
"""Every declared API by its key."""
