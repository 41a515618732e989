"""What a life under hostile input is there to notice, it notices."""

from __future__ import annotations

import pytest
from kit.fuzz.life import Life
from kit.fuzz.watch import Finding

from ottla.broker.runtime.disk import GroupSyncer, QueuedSyncer
from ottla.broker.runtime.threads import NoThread


def test_who_waits_for_a_sync_that_finds_no_thread_is_answered() -> None:
    with Life() as life:
        life.live([{"threads": False}, {"threads": True}, {"threads": False}])


def test_a_sync_that_strands_who_waits_where_there_is_no_thread_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(self: QueuedSyncer, queue: object, sync_round: object) -> None:
        try:
            self._hand_over(queue, sync_round)  # type: ignore[arg-type]
        except NoThread:
            return

    monkeypatch.setattr(GroupSyncer, "_submit", submit)
    with Life() as life, pytest.raises(Finding, match="the witness got no answer to OffsetCommitRequest"):
        life.step({"threads": False})
