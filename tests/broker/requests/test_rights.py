"""Rights that are asked for beside others, whose lack is no denial; and producers that get no answers."""

from __future__ import annotations

import pytest
from kit.exchange import Exchange, batch, make_topic, produce_request
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


@pytest.mark.parametrize("options", [{}, {"transactional_id": "tx"}])
def test_a_producer_without_answers_learns_that_it_has_no_right_by_the_end_of_its_connection(
    options: dict[str, str],
) -> None:
    node, _, _ = start_node(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer", super_users="User:nobody"
    )
    make_topic(node, "t")
    client = Exchange(node)
    records = batch(is_transactional=bool(options), producer_id=7, producer_epoch=0, base_sequence=0)
    client.send(produce_request("t", records, acks=0, **options), 9)
    node.settle()
    assert client.transport.is_closing()
    partition = node.services.catalog.partition("t", 0)
    assert partition is not None
    assert partition.log.log_end_offset == 0
