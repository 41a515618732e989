"""Topics made, grown and deleted through the catalog of a node without a loop, settled and answered at once."""

from __future__ import annotations

from uuid import UUID

from kit.nodes import DATA
from kit.simulated_files import SimulatedFiles

from ottla.broker.catalog.catalog import NewPartitions, NewTopic, TopicResult
from ottla.broker.metadata.reading import METADATA_DIRECTORY
from ottla.broker.metadata.scan import scan_log
from ottla.broker.node import Node
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import decode_batch
from ottla.protocol.stored.metadata import decode_metadata_record


def create(node: Node, *requests: NewTopic, validate_only: bool = False) -> list[TopicResult]:
    answers: list[list[TopicResult]] = []
    node.services.catalog.create_topics(requests, answers.append, validate_only=validate_only)
    node.settle()
    (answer,) = answers
    return answer


def grow(node: Node, *requests: NewPartitions, validate_only: bool = False) -> list[TopicResult]:
    answers: list[list[TopicResult]] = []
    node.services.catalog.create_partitions(requests, answers.append, validate_only=validate_only)
    node.settle()
    (answer,) = answers
    return answer


def delete(node: Node, *targets: str | UUID) -> list[TopicResult]:
    answers: list[list[TopicResult]] = []
    node.services.catalog.delete_topics(targets, answers.append)
    node.settle()
    (answer,) = answers
    return answer


def codes(results: list[TopicResult]) -> list[ErrorCode]:
    return [result.error_code for result in results]


def record_names(files: SimulatedFiles) -> list[list[str]]:
    """The types of the records of the metadata log, batch by batch; control batches as []."""
    return [
        []
        if header.is_control
        else [type(decode_metadata_record(record.value or b"")).__name__ for record in decode_batch(batch)]
        for header, batch in scan_log(files, DATA / METADATA_DIRECTORY, 0)
    ]
