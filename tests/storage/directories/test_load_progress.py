"""What people read while logs are opened."""

from __future__ import annotations

import logging

import pytest
from kit.clock import ManualClock

from ottla.storage.directories.load_progress import LINE_EVERY_MS, LoadInterrupted, LoadProgress
from ottla.storage.formats.layout import TopicPartition

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)
GB = 1_000_000_000


def test_a_line_now_and_then_says_how_far_it_is_and_how_long_it_will_take(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ottla")
    clock = ManualClock()
    progress = LoadProgress(clock)
    progress.begin(5, {ONE: 8 * GB, TWO: 2 * GB})
    for done in range(1, 5):
        clock.advance(LINE_EVERY_MS // 2)
        progress.update(ONE, done * GB, 8 * GB)
    progress.log_done()
    assert caplog.messages == [
        "recovery: up to 10.0 GB in 2 logs may not be on disk",
        "recovery: 20 %, 2.0 of 10.0 GB, 0.40 GB/s, about 20 s left, 0 of 5 logs are open",
        "recovery: 40 %, 4.0 of 10.0 GB, 0.40 GB/s, about 15 s left, 0 of 5 logs are open",
    ]


def test_a_recovery_that_has_less_to_do_than_it_seemed_is_nearer_to_its_end() -> None:
    progress = LoadProgress(ManualClock())
    progress.begin(2, {ONE: 9 * GB, TWO: 1 * GB})
    progress.update(ONE, GB, GB)
    assert progress.words().startswith("50 %, 1.0 of 2.0 GB")


def test_little_to_recover_is_reported_in_a_smaller_unit_and_none_not_at_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ottla")
    progress = LoadProgress(ManualClock())
    progress.update(ONE, 500, 500)  # the metadata log, which is opened before the others are counted
    progress.begin(3, {})
    progress.begin(3, {TWO: 28_700_000})
    assert caplog.messages == ["recovery: up to 28.7 MB in 1 logs may not be on disk"]


def test_without_a_recovery_logs_are_counted() -> None:
    progress = LoadProgress(ManualClock())
    progress.begin(2, {})
    progress.log_done()
    assert progress.words() == "1 of 2 logs are open"


def test_a_load_that_was_asked_to_stop_stops_at_the_next_step() -> None:
    progress = LoadProgress(ManualClock())
    progress.begin(1, {ONE: GB})
    progress.update(ONE, 1, GB)
    progress.stop()
    with pytest.raises(LoadInterrupted):
        progress.update(ONE, 2, GB)
