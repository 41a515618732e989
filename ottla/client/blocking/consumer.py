"""The blocking Consumer: records that are decoded already are taken without a visit to the loop thread.

One reader at a time: `getone`, `getmany` and iteration in several threads share the records among them, each once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Self, Unpack

from ottla.client.blocking.twins import ConsumerMethods
from ottla.client.consumer_options import ConsumerKeywords
from ottla.client.options import Servers
from ottla.client.structs import ConsumerRecord, K, TopicPartition, V


class Consumer(ConsumerMethods[K, V]):
    """The blocking twin of `ottla.client.Consumer`: the same options and methods, which wait. A context manager.

    Iterate over it for its records.
    """

    def __init__(
        self,
        bootstrap_servers: Servers | Mapping[str, object] | None = None,
        *,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> None:
        super().__init__(
            bootstrap_servers, key_deserializer=key_deserializer, value_deserializer=value_deserializer, **options
        )
        self._reading = threading.Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord[K, V]:
        return self.getone()

    def getone(self) -> ConsumerRecord[K, V]:
        """Return the next record; waits for it. Raises ClientClosed, and what is the matter with a partition."""
        self._running()
        with self._reading:
            if not self._inner._is_closed:
                record = self._inner._take_decoded()
                if record is not None:
                    return record
            return self._await(self._inner.getone())

    def getmany(
        self, *partitions: tuple[str, int], timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return records that are there, by partition; waits up to `timeout_ms` for the first ones.

        Only of `partitions` when some are named. At most `max_records` (None: `max_poll_records`). An empty dict when
        nothing came, or another thread was reading all the time. Raises what is the matter with a partition once there
        is nothing else to return.
        """
        self._running()
        if not self._reading.acquire(timeout=timeout_ms / 1000):
            return {}
        try:
            return self._await(self._inner.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records))
        finally:
            self._reading.release()
