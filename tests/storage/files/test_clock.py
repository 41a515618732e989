"""The machine's own clocks, and which of them counts suspends."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.storage.files import clock
from ottla.storage.files.clock import SystemClock, boot_clock


def test_the_boot_clock_goes_on_and_never_back() -> None:
    system = SystemClock()
    looks = [system.boot_ms() for _ in range(100)]
    assert looks == sorted(looks)
    assert looks[0] > 0


def test_the_monotonic_clock_in_nanoseconds_is_that_in_milliseconds() -> None:
    system = SystemClock()
    since_ms, ns, until_ms = system.monotonic_ms(), system.monotonic_ns(), system.monotonic_ms()
    assert since_ms <= ns // 1_000_000 <= until_ms


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has CLOCK_BOOTTIME")
def test_on_linux_the_boot_clock_is_that_of_the_kernel_and_the_boot_has_an_id() -> None:
    system = SystemClock()
    before_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    assert before_ms <= system.boot_ms() <= time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    assert system.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.mark.parametrize(
    ("platform", "names", "chosen"),
    [
        ("linux", ["CLOCK_BOOTTIME", "CLOCK_MONOTONIC_RAW", "CLOCK_MONOTONIC"], "CLOCK_BOOTTIME"),
        ("darwin", ["CLOCK_MONOTONIC_RAW", "CLOCK_MONOTONIC"], "CLOCK_MONOTONIC_RAW"),
        ("freebsd14", ["CLOCK_MONOTONIC"], "CLOCK_MONOTONIC"),
        ("linux", ["CLOCK_MONOTONIC_RAW", "CLOCK_MONOTONIC"], "CLOCK_MONOTONIC"),
    ],
)
def test_a_clock_that_counts_suspends_is_taken_where_there_is_one(platform: str, names: list[str], chosen: str) -> None:
    assert boot_clock(platform, SimpleNamespace(**dict.fromkeys(names, 0))) == chosen


def test_a_machine_that_names_no_boot_has_an_empty_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(clock, "BOOT_ID_FILE", tmp_path / "none")
    assert SystemClock().boot_id() == ""
