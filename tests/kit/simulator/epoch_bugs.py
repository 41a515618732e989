"""Planted bugs that show where clients know leader epochs (`epoch_clients.py`)."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

from kit.simulator import planting
from kit.simulator.planting import before, nothing

from ottla.broker.fetch.fetch_read import FetchRead
from ottla.broker.partitions.partition import Partition
from ottla.storage.log.leader_epochs import LeaderEpochs

bug = partial(planting.bug, epochs=True)


@bug("an old leader epoch is not fenced", "Fetch does not compare the epoch that a client takes for the leader's")
def _not_fenced() -> Any:
    return mock.patch.object(FetchRead, "_check_epoch", nothing)


@bug("each leader epoch ends at the log end", "OffsetForLeaderEpoch answers as if no later epoch had begun")
def _ends_at_log_end() -> Any:
    def end_offset_for(self: LeaderEpochs, epoch: int, log_end_offset: int) -> tuple[int, int]:
        known = [entry.epoch for entry in self.entries if entry.epoch <= epoch]
        return (known[-1], log_end_offset) if known and epoch <= self.latest else (-1, -1)

    return mock.patch.object(LeaderEpochs, "end_offset_for", end_offset_for)


@bug("leader epochs are not written", "a start finds only those of the batches that it reads")
def _not_written() -> Any:
    def write(self: LeaderEpochs) -> None:
        self.on_disk = self.in_memory

    return mock.patch.object(LeaderEpochs, "write", write)


@bug("an unknown leader epoch is taken for the newest", "a client of a leader that is no more finds its log sound")
def _unknown_is_newest() -> Any:
    def replace(end_offset: Any) -> Any:
        def patched(self: Partition, epoch: int) -> Any:
            return end_offset(self, min(epoch, self.leader_epoch))

        return patched

    return before(Partition, "end_offset_for_epoch", replace)


@bug("the leader's epoch ends beyond what may be seen", "its end is that of the log, which is not synced")
def _beyond_the_high_watermark() -> Any:
    def replace(end_offset: Any) -> Any:
        def patched(self: Partition, epoch: int) -> Any:
            if epoch == self.leader_epoch:
                return epoch, self.log.log_end_offset
            return end_offset(self, epoch)

        return patched

    return before(Partition, "end_offset_for_epoch", replace)
