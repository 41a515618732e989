"""The routes of batches to the leaders of their partitions, cached while metadata and connections are the same.

A route contains the template of the request for one batch. There is no route for a partition without a leader or a
connection, nor for requests that differ from the template: in a transaction, without an answer, in an old version.
"""

from __future__ import annotations

from ottla.client.accumulator import Batch
from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.producer_options import ProducerOptions
from ottla.client_core.partition_queue import PartitionQueue
from ottla.client_core.produce_template import FIRST_VERSION, ProduceTemplate
from ottla.client_core.send_queues import LAST_VERSION_WITH_TOPIC_NAMES
from ottla.client_core.versions import ANY_VERSION
from ottla.protocol.api.produce import ProduceRequest


class Route:
    """The route of a partition's batches, from the metadata of `view_version`."""

    __slots__ = ("connection", "leader_id", "template", "view_version")

    def __init__(self, leader_id: int, connection: Connection, template: ProduceTemplate, view_version: int) -> None:
        self.leader_id = leader_id
        self.connection = connection
        self.template = template
        self.view_version = view_version


class Routes:
    """See the module."""

    def __init__(self, cluster: Cluster, options: ProducerOptions) -> None:
        self._cluster = cluster
        self._acks = options.acks
        self._timeout_ms = options.request_timeout_ms
        self._has_templates = options.acks != 0 and options.transactional_id is None
        self.found: dict[PartitionQueue[Batch], Route] = {}
        """The last route of each queue; valid while its version is that of the view and its connection is open."""

    def find(self, queue: PartitionQueue[Batch], leader_id: int) -> Route | None:
        """Return the route to a leader, and cache it; None if there is none. Raises UnsupportedByBroker."""
        known = self.found.get(queue)
        is_same = known is not None and known.leader_id == leader_id and known.view_version == self._cluster.version
        if known is not None and is_same and known.connection.is_open:
            return known
        connection = self._cluster.open_connection(leader_id)
        if connection is None or not self._has_templates:
            return None
        newest = ANY_VERSION if queue.topic_id.int else LAST_VERSION_WITH_TOPIC_NAMES
        version = connection.version_for(ProduceRequest, newest)
        if version < FIRST_VERSION:
            return None
        template = None if known is None else known.template
        if template is None or template.version != version or template.topic_id is not queue.topic_id:
            template = ProduceTemplate(
                version,
                client_id=self._cluster.options.client_id,
                topic=queue.topic,
                topic_id=queue.topic_id,
                partition=queue.partition,
                acks=self._acks,
                timeout_ms=self._timeout_ms,
            )
        found = self.found[queue] = Route(leader_id, connection, template, self._cluster.version)
        return found
