"""A simulated reader that waits at the end of a partition for more."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from kit.simulator.model import Model
from kit.simulator.readers import MOST_BYTES, Reader, answer_of
from kit.simulator.topic_model import TopicModel

from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.simulator.clients import Line

Where = tuple[TopicModel, int]
WAIT_MS: Final = 500
FOLLOW_VERSION: Final = 12


class Follower(Reader):
    """Waits for more of one partition, without a session; one request at a time."""

    def __init__(self, model: Model, chance: random.Random) -> None:
        super().__init__(model, chance)
        self.awaited: list[Where] = []
        """The partitions for more of which it waits."""

    def reconnect(self) -> None:
        """As a reader; and an answer of before never comes."""
        super().reconnect()
        self.awaited = []

    def follow(self, line: Line, topic: TopicModel, index: int) -> None:
        """Fetch from where it is, if it does not wait."""
        if self.awaited:
            return
        self.awaited = [(topic, index)]
        position, deleted_before = self._begin(topic, index)

        def answered(response: Response) -> None:
            self.awaited = []
            answer = answer_of(response)
            if answer is not None:
                self._take(topic, index, position, deleted_before, answer)

        wanted = FetchRequest.FetchPartition(partition=index, fetch_offset=position, partition_max_bytes=MOST_BYTES)
        of_topic = FetchRequest.FetchTopic(topic=topic.name, partitions=[wanted])
        request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, session_epoch=-1, topics=[of_topic])
        line.send(request, FOLLOW_VERSION, answered)
