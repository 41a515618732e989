"""What the broker counts about itself, and how Prometheus sees it.

The hot path adds to plain ints (`metrics.messages_in += n`); nothing is looked up or locked there. A custom collector
turns the ints, and what logs and directories know about themselves, into samples when somebody scrapes.
"""

from __future__ import annotations


class TopicCounters:
    """Counts of one topic: records and bytes in, bytes out, requests, failures."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "messages_in",
        "total_fetch_requests",
        "total_produce_requests",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.total_produce_requests = 0
        self.total_fetch_requests = 0
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0


class Metrics:
    """The counters of one node. Callers add to the attributes directly.

    `topic(name)` gives the topic's counters (keep the object, do not look it up for every batch).
    `request(api_name, version, error_code, elapsed_us)` is called once for each answered request.
    """

    def __init__(self) -> None:
        self.connections_opened = 0
        self.connections_closed = 0
        self.connections_refused = 0
        self.malformed_requests = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.syncs = 0
        self.sync_failures = 0
        self.sync_us = 0
        self.loop_lag_us = 0
        self.topics: dict[str, TopicCounters] = {}

    def topic(self, name: str) -> TopicCounters:
        """The counters of a topic, made on first use."""
        counters = self.topics.get(name)
        if counters is None:
            counters = self.topics[name] = TopicCounters()
        return counters

    def request(self, api_name: str, version: int, error_code: int, elapsed_us: int) -> None:
        """Count one answered request: by API, version and (first) error code, with its time."""
        raise NotImplementedError

    def sync(self, elapsed_us: int, *, failed: bool = False) -> None:
        """Count one fdatasync and its time."""
        raise NotImplementedError
