"""The acquired records that the program has, by partition, until all of them are acknowledged or lost.

An acknowledgement finds its record here, in any thread. Everything else is called in the loop's. `settle` hands what
has become of the records to the driver of the sessions (`fetcher.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.client.share.acquired_records import AcquiredRecords
from ottla.client.share.fetcher import ShareFetcher
from ottla.client.structs import ShareRecord, TopicPartition
from ottla.protocol.api.share_fetch import AcknowledgeType


class GivenRecords:
    """See the module. `is_explicit`: the program acknowledges each record."""

    def __init__(self, *, is_explicit: bool) -> None:
        self._is_explicit = is_explicit
        self._by_partition: dict[TopicPartition, list[AcquiredRecords]] = {}

    def add(self, found: AcquiredRecords) -> None:
        """Remember acquired records of which the program takes some."""
        given = self._by_partition.setdefault(found.partition, [])
        if found not in given:
            given.append(found)

    def acknowledge(self, record: ShareRecord[Any, Any], kind: AcknowledgeType) -> bool:
        """Note the program's acknowledgement of a record; return False if it does not have the record (any more)."""
        offset = record.offset
        for given in reversed(self._by_partition.get((record.topic, record.partition), ())):  # type: ignore[call-overload]  # a tuple is equal to a TopicPartition
            if given.acknowledge(offset, kind):
                return True
        return False

    def settle(self, fetcher: ShareFetcher, now: float) -> None:
        """Hand the acknowledgements of taken records to their sessions, and forget those that are done or lost."""
        for partition, given in list(self._by_partition.items()):
            left: list[AcquiredRecords] = []
            for one in given:
                if self._is_explicit:
                    runs, renewals = one.said()
                    fetcher.renew(one, renewals)
                else:
                    runs = one.accept_taken()
                fetcher.acknowledge(one, runs)
                if not one.is_done and one.session.loss is None and one.lock_until > now:
                    left.append(one)
            if left:
                self._by_partition[partition] = left
            else:
                del self._by_partition[partition]

    def check_acknowledged(self) -> None:
        """Raise RuntimeError if the program has to acknowledge a record before its next poll (explicit mode)."""
        for partition, given in self._by_partition.items():
            count = sum(one.unanswered_count for one in given)
            if count:
                raise RuntimeError(
                    f"{partition.topic}-{partition.partition}: {count} records of the last poll are not acknowledged; "
                    "in explicit mode acknowledge each before the next poll"
                )

    def hand_back(self, fetcher: ShareFetcher, taken: Mapping[TopicPartition, Sequence[ShareRecord[Any, Any]]]) -> None:
        """Let the next poll return records that the program did not get, because it was interrupted."""
        for partition, records in taken.items():
            left = len(records)
            for one in reversed(self._by_partition.get(partition, ())):
                count = min(left, one.taken_count)
                if count:
                    if one in fetcher.ready:
                        fetcher.ready.remove(one)
                    fetcher.ready.appendleft(one.put_back(count))
                    left -= count

    def on_renewed(self, partition: TopicPartition, lock_until: float) -> None:
        """Note that the broker has renewed the locks of a partition's records that the program wants to keep."""
        for one in self._by_partition.get(partition, ()):
            one.on_renewed(lock_until)

    def end(self, fetcher: ShareFetcher) -> None:
        """Hand over what the program has said, and forget everything: the rest is released with its session."""
        if self._is_explicit:
            for given in self._by_partition.values():
                for one in given:
                    fetcher.acknowledge(one, one.said()[0])
        self._by_partition = {}
