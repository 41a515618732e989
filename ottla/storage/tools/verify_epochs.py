"""Verifies a `leader-epoch-checkpoint` against the epochs in the batches; the first contradiction is reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ottla.protocol.records.batch import BatchHeader
from ottla.storage.files.files import Files
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import BlankFile, BrokenFile
from ottla.storage.formats.leader_epoch_checkpoint import EpochEntry, read_leader_epochs
from ottla.storage.tools.verify_findings import Finding, Promises, Severity

NO_LEADER_EPOCH = -1
"""The epoch of a batch from a broker that knew none."""


class EpochCheck:
    """See the module."""

    def __init__(self, files: Files, directory: Path, promises: Promises) -> None:
        self._path = directory / layout.LEADER_EPOCH_CHECKPOINT_FILE
        self._promises = promises
        self._problem: Finding | None = None
        self._is_blank = False
        self._slot = 0
        self._is_done = False
        self._entries: list[EpochEntry] = []
        try:
            self._entries = read_leader_epochs(files, directory)
        except BrokenFile as error:
            self._problem = Finding(Severity.DAMAGE, self._path, str(error).removeprefix(f"{error.path}: "))
            self._is_done = True
            self._is_blank = isinstance(error, BlankFile)

    def batch(self, header: BatchHeader) -> Iterator[Finding]:
        """Process the next valid batch."""
        epoch, offset = header.partition_leader_epoch, header.base_offset
        if self._is_done or epoch == NO_LEADER_EPOCH or offset < self._promises.log_start_offset:
            return
        entries = self._entries
        while self._slot + 1 < len(entries) and entries[self._slot + 1].start_offset <= offset:
            self._slot += 1
        described = entries[self._slot] if entries and entries[self._slot].start_offset <= offset else None
        if described is None or described.epoch != epoch:
            self._is_done = True
            says = "no epoch" if described is None else f"epoch {described.epoch}"
            problem = f"offset {offset} was written in epoch {epoch}, the file says {says}"
            yield Finding(self._promises.severity_at(offset), self._path, problem, offset=offset)

    def end(self, log_end_offset: int) -> Iterator[Finding]:
        """Process the end of the log."""
        if self._problem is not None and self._is_blank:
            yield self._blank(self._problem, log_end_offset)
        elif self._problem is not None:
            yield self._problem
        for entry in self._entries:
            if entry.start_offset > log_end_offset:
                problem = f"epoch {entry.epoch} begins at {entry.start_offset}, the log ends at {log_end_offset}"
                yield Finding(Severity.DAMAGE, self._path, problem, offset=entry.start_offset)

    def _blank(self, problem: Finding, log_end_offset: int) -> Finding:
        """The finding for a blank file, which a crash leaves while the partition is created: the first sync covers
        it.
        """
        if not log_end_offset:
            words = f"{problem.problem}: it is written with the first records"
            return problem._replace(severity=Severity.NOTE, problem=words)
        severity = self._promises.severity_at(0)
        if severity is Severity.DAMAGE:
            return problem
        words = f"{problem.problem}: the next start takes the epochs from the batches"
        return problem._replace(severity=severity, problem=words)
