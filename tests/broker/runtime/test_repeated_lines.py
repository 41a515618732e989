"""What of many lines of one kind reaches the log."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from ottla.broker.runtime.repeated_lines import A_MINUTE, AT_ONCE, RepeatedLines


class Log:
    """A logger with the filter, a clock that stands still, and what was written."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self._stream = io.StringIO()
        self.handler = logging.StreamHandler(self._stream)
        self.handler.addFilter(RepeatedLines(lambda: self.now_s))
        self.logger = logging.getLogger("test_repeated_lines")
        self.logger.propagate = False
        self.logger.setLevel(logging.DEBUG)
        self.logger.addHandler(self.handler)

    def refuse(self, count: int, level: int = logging.WARNING) -> None:
        for number in range(count):
            self.logger.log(level, "%s: closing: %s", number, "not Kafka")

    def lines(self) -> list[str]:
        """What was written since the last call."""
        written = self._stream.getvalue().splitlines()
        self._stream.seek(0)
        self._stream.truncate()
        return written


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    yield log
    log.logger.removeHandler(log.handler)


def test_a_flood_is_cut_and_says_so(log: Log) -> None:
    log.refuse(10_000)
    written = log.lines()
    assert len(written) == AT_ONCE
    assert written[0] == "0: closing: not Kafka"
    assert written[-1] == f"99: closing: not Kafka (from now on {A_MINUTE} lines like this are written a minute)"


def test_a_flood_that_goes_on_has_ten_lines_a_minute_and_counts_the_rest(log: Log) -> None:
    log.refuse(AT_ONCE + 7)
    log.lines()
    for _ in range(60):
        log.now_s += 1
        log.refuse(10)
    written = log.lines()
    assert len(written) == A_MINUTE
    assert written[0].endswith("(57 lines like this were left out)"), "7 before, and 50 in the first five seconds"
    assert all(line.endswith("(59 lines like this were left out)") for line in written[1:])


def test_after_a_quiet_time_lines_are_written_again_as_if_nothing_had_been(log: Log) -> None:
    log.refuse(AT_ONCE)
    log.lines()
    log.now_s += 3_600
    log.refuse(AT_ONCE - 1)
    assert [line for line in log.lines() if "(" in line] == []


def test_one_kind_does_not_hold_back_another(log: Log) -> None:
    log.refuse(AT_ONCE + 1)
    log.lines()
    log.logger.error("the disk failed")
    assert log.lines() == ["the disk failed"]


def test_what_somebody_turned_on_to_look_at_is_all_there(log: Log) -> None:
    log.refuse(AT_ONCE + 50, logging.DEBUG)
    assert len(log.lines()) == AT_ONCE + 50


def test_the_traceback_of_a_bug_is_not_written_without_end(log: Log) -> None:
    for _ in range(AT_ONCE + 50):
        try:
            raise ZeroDivisionError("a bug")
        except ZeroDivisionError:
            log.logger.exception("bug")
    assert sum(line == "ZeroDivisionError: a bug" for line in log.lines()) == AT_ONCE
