"""The APIs that Ottla speaks: one module per API, with its request, its response and how it is refused.

`REGISTRY` is what the broker looks requests up in. The version range of an `Api` is that of its declaration; which
versions are advertised, and to whom, is the broker's affair.

To add an API: its line in `ApiKey` and its module here, named as the line, with

    class <Name>Request(Request, key=..., versions=...)
    class <Name>Response(Response, key=..., versions=...)
    def refused(request, version, code, message) -> <Name>Response     (None where there is no error response)

`refused` is Kafka's `AbstractRequest.getErrorResponse`: the response when the whole request is refused. A response
with an error code at its top has it there; the others have it in every item that the request names. Handlers refuse
single items themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from importlib import import_module
from typing import Any, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response
from ottla.protocol.versions import NO_VERSION, UNBOUNDED


class ApiKey(IntEnum):
    """The declared APIs, by the names and keys that Kafka gives them; the module of each is its name in lower case."""

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
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


class Api(NamedTuple):
    """One API: its key, its name as Kafka writes it, its two messages and their versions, and how it is refused."""

    key: ApiKey
    name: str
    request: type[Request]
    response: type[Response]
    min_version: int
    max_version: int
    flexible_from: int
    """The first version with compact lengths, tagged fields and the longer headers; `UNBOUNDED` if there is none."""
    refused: Callable[[Any, int, ErrorCode, str], Response | None]
    """The response that refuses all of a request: by the request, its version, the code and a message for people."""


def _declared(key: ApiKey) -> Api:
    """The API that the module of this name declares; both messages state key and versions, and have to agree."""
    module = import_module(f"{__name__}.{key.name.lower()}")
    name = "".join(word.capitalize() for word in key.name.split("_"))
    request: type[Request] = getattr(module, f"{name}Request")
    response: type[Response] = getattr(module, f"{name}Response")
    versions, flexible = request.message_versions, request.flexible_versions
    if (key, versions, flexible) != (request.message_key, response.message_versions, response.flexible_versions) or (
        request.message_key != response.message_key
    ):
        raise TypeError(f"{name}: ApiKey, request and response disagree about key or versions")
    flexible_from = UNBOUNDED if flexible == NO_VERSION else flexible.first
    return Api(key, name, request, response, *versions, flexible_from, module.refused)


REGISTRY: dict[int, Api] = {key: _declared(key) for key in ApiKey}
"""Every declared API by its key."""
