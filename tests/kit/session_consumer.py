"""A consumer in an incremental fetch session (KIP-227), as Java's are, over an exchange with a node."""

from __future__ import annotations

from kit.exchange import Exchange

from ottla.broker.node import Node
from ottla.protocol.api.fetch import FetchRequest, FetchResponse

MAX_WAIT_MS = 500


class SessionConsumer:
    """A client that goes on in a session as Java's does: it names what it adds, and where it has got on.

    `beside` is another client of the node, as in `Exchange`.
    """

    def __init__(self, node: Node, version: int, beside: Exchange | None = None) -> None:
        self.exchange = Exchange(node, beside)
        self.version = version
        self.session_id = self.epoch = 0
        self.positions: dict[tuple[str, int], int] = {}
        self.named: dict[tuple[str, int], int] = {}
        self.forgotten: list[tuple[str, int]] = []
        self.leader_epoch = self.last_fetched_epoch = -1
        self.limits: dict[str, int] = {"max_wait_ms": MAX_WAIT_MS, "min_bytes": 1, "max_bytes": 50 << 20}
        self.partition_max_bytes = 1 << 20
        self.is_waiting = False
        self.answers: list[bytes] = []

    def fetch(self, *, epoch: int | None = None, everything: bool = False) -> None:
        """Send the session's next request, or the first one of a new session."""
        node = self.exchange.node
        epoch = self.epoch if epoch is None else epoch
        wanted = {
            key: position
            for key, position in self.positions.items()
            if everything or epoch <= 0 or self.named.get(key) != position
        }
        self.named = {**({} if epoch <= 0 else self.named), **wanted}
        topics: list[FetchRequest.FetchTopic] = []
        for (name, index), position in wanted.items():
            topic = node.services.catalog.topics.get(name)
            if topic is None:
                continue
            if not topics or topics[-1].topic_id != topic.id:
                topics.append(FetchRequest.FetchTopic(topic=name, topic_id=topic.id, partitions=[]))
            topics[-1].partitions.append(
                FetchRequest.FetchPartition(
                    partition=index,
                    fetch_offset=position,
                    current_leader_epoch=self.leader_epoch,
                    last_fetched_epoch=self.last_fetched_epoch if self.version >= 12 else -1,
                    partition_max_bytes=self.partition_max_bytes,
                )
            )
        forgotten = [
            FetchRequest.ForgottenTopic(topic=name, topic_id=node.services.catalog.topics[name].id, partitions=[index])
            for name, index in self.forgotten
            if name in node.services.catalog.topics
        ]
        self.forgotten.clear()
        request = FetchRequest(
            session_id=self.session_id,
            session_epoch=epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
            **self.limits,  # type: ignore[arg-type]  # fields by name
        )
        self.exchange.send(request, self.version)
        self.is_waiting = True
        node.settle()
        self.take()

    def take(self) -> None:
        """Read what has been answered."""
        transport = self.exchange.transport
        if not transport.written:
            return
        self.answers.append(bytes(transport.written))
        answer = self.exchange.reply()
        assert isinstance(answer, FetchResponse)
        self.is_waiting = False
        self.epoch += 1
        if answer.error_code or not answer.session_id:
            self.session_id = self.epoch = 0
            return
        self.session_id = answer.session_id
        names = {topic.id: topic.name for topic in self.exchange.node.services.catalog.topics.values()}
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                if (name, data.partition_index) in self.positions:
                    self._read(name, data)

    def _read(self, name: str, data: FetchResponse.PartitionData) -> None:
        key = (name, data.partition_index)
        if data.error_code:
            self.positions[key] = max(data.log_start_offset, 0)
        at, records = 0, bytes(data.records or b"")
        while at < len(records):
            base, length = int.from_bytes(records[at : at + 8], "big"), int.from_bytes(records[at + 8 : at + 12], "big")
            self.positions[key] = base + int.from_bytes(records[at + 23 : at + 27], "big") + 1
            at += 12 + length
