"""The leader epochs in the batches, without those that a flipped bit made: no checksum covers that field.

Epochs never decrease from batch to batch. Where they do, one side is damaged: the one with fewer batches in a row,
because a flipped bit changes one batch. A wrong epoch in the very last batch looks like a new one, unless the epochs
are known: the checkpoint has an epoch before any batch of it is acknowledged, and the metadata has the current one.

    1 1 1 9 1 1 3 3    ->    epoch 1 from the first batch on, epoch 3 from the seventh; 9 is damage
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.plain import Plain
from ottla.protocol.records.batch import BatchHeader
from ottla.storage.formats.leader_epoch_checkpoint import EpochEntry


class _Run(Plain):
    epoch: int
    start_offset: int
    batches: int = 1


class EpochRuns:
    """Collects the batches of a log in order (`note`); `entries` are those that its checkpoint should have."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def note(self, header: BatchHeader) -> None:
        """Add the next batch; one without an epoch (negative) is ignored."""
        epoch = header.partition_leader_epoch
        if self._runs and self._runs[-1].epoch == epoch:
            self._runs[-1].batches += 1
        elif epoch >= 0:
            self._runs.append(_Run(epoch, header.base_offset))

    def entries(self, known: Collection[int] = ()) -> list[EpochEntry]:
        """The first offset of each epoch. `known`: all epochs that the partition had, as far as a checkpoint that can
        be read has them; empty without one.
        """
        kept: list[_Run] = []
        for run in self._runs:
            if known and run.epoch not in known and run.batches == 1:
                continue
            while kept and kept[-1].epoch > run.epoch and kept[-1].batches <= run.batches:
                kept.pop()
            if not kept or kept[-1].epoch < run.epoch:
                kept.append(_Run(run.epoch, run.start_offset, run.batches))
            elif kept[-1].epoch == run.epoch:
                kept[-1].batches += run.batches
        return [EpochEntry(run.epoch, run.start_offset) for run in kept]
