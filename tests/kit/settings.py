"""Changing and describing configurations of a simulated node through its APIs."""

from __future__ import annotations

from collections.abc import Sequence

from kit.nodes import ask

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.node import Node
from ottla.protocol.api.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from ottla.protocol.errors import ErrorCode

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

Answer = tuple[ErrorCode, str | None]
Change = tuple[str, int, str | None]


def create_topic(node: Node, name: str = "orders", **configs: str) -> None:
    """A topic of one partition; keys with underscores for dots."""
    request = NewTopic(name, configs=[(key.replace("_", "."), value) for key, value in configs.items()])
    node.services.catalog.create_topics([request], lambda results: None)
    node.settle()
    assert name in node.services.catalog.topics


def alter(node: Node, kind: int, name: str, *changes: Change, validate_only: bool = False, version: int = 1) -> Answer:
    """What IncrementalAlterConfigs answers about one resource."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
        ],
        validate_only=validate_only,
    )
    response = ask(node, request, version)
    assert isinstance(response, IncrementalAlterConfigsResponse)
    (answer,) = response.responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return ErrorCode.of(answer.error_code), answer.error_message


def replace(
    node: Node, kind: int, name: str, *pairs: tuple[str, str | None], validate_only: bool = False, version: int = 2
) -> Answer:
    """What AlterConfigs answers about one resource."""
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsRequest.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in pairs],
            )
        ],
        validate_only=validate_only,
    )
    response = ask(node, request, version)
    assert isinstance(response, AlterConfigsResponse)
    (answer,) = response.responses
    return ErrorCode.of(answer.error_code), answer.error_message


def described(
    node: Node, kind: int, name: str, keys: Sequence[str] | None = None
) -> dict[str, DescribeConfigsResponse.DescribeConfigsResourceResult]:
    """The entries of one resource by key."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
            )
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    response = ask(node, request, 4)
    assert isinstance(response, DescribeConfigsResponse)
    (result,) = response.results
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {entry.name: entry for entry in result.configs}


def value_of(node: Node, kind: int, name: str, key: str) -> tuple[str | None, int]:
    """The value of one key, and its source."""
    entry = described(node, kind, name, [key])[key]
    return entry.value, entry.config_source


def synonyms_of(node: Node, kind: int, name: str, key: str) -> list[tuple[str, str | None, int]]:
    """(key, value, source) of all that had a say in one key."""
    return [(one.name, one.value, one.source) for one in described(node, kind, name, [key])[key].synonyms]
