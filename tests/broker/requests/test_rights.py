"""Rights that are asked for beside others: lacking them is no denial, and the audit log does not hear of it."""

from __future__ import annotations

import pytest
from kit.exchange import Exchange, make_topic
from kit.nodes import start_node

from ottla.broker.context import Context
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.list_groups import ListGroupsRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.message import Request


class Heard:
    """An audit log that keeps what was denied."""

    def __init__(self) -> None:
        self.denied: list[str] = []

    def authorization(
        self, context: Context, operation: object, resource_type: object, name: str | None, *, is_allowed: bool
    ) -> None:
        if not is_allowed:
            self.denied.append(f"{operation!r} {resource_type!r} {name}".replace("AclOperation.", ""))

    def __getattr__(self, name: str) -> object:
        """Everything else that is noted here is left aside."""
        return lambda *values, **named: None


NAMED = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
TOPIC = CreateTopicsRequest.CreatableTopic(
    name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[]
)


@pytest.mark.parametrize(
    ("request_", "version", "denials"),
    [
        (MetadataRequest(topics=None), 9, 0),
        (NAMED, 9, 1),
        (ListGroupsRequest(), 4, 0),
        (CreateTopicsRequest(topics=[TOPIC]), 7, 1),
    ],
)
def test_what_is_left_out_of_a_list_is_no_denial_and_what_is_named_is_one(
    request_: Request, version: int, denials: int
) -> None:
    node, _, _ = start_node(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer", super_users="User:nobody"
    )
    make_topic(node, "t")
    heard = Heard()
    object.__setattr__(node.services, "audit", heard)  # frozen
    Exchange(node).ask(request_, version)
    assert len(heard.denied) == denials, heard.denied
