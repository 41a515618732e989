"""When the wall clock is believed, and by which time is deleted when it is not."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.clock import ManualClock

from ottla.storage.files.clock_trust import LAST_MS, ClockLimits, ClockTrust, KnownTime, Standing, duration, shown

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LIMITS = ClockLimits(jump_max_ms=HOUR_MS, trust_after_ms=DAY_MS)


class NamelessBoots(ManualClock):
    def boot_id(self) -> str:
        return ""


def trusting(clock: ManualClock, known: KnownTime | None = None, limits: ClockLimits = LIMITS) -> ClockTrust:
    trust = ClockTrust(clock, lambda: limits)
    trust.begin(known)
    return trust


def jump(clock: ManualClock, ms: int) -> None:
    clock.set_wall(clock.wall_ms() + ms)


def go_on(trust: ClockTrust, clock: ManualClock, ms: int, step_ms: int = 30_000) -> None:
    for _ in range(ms // step_ms):
        clock.advance(step_ms)
        trust.look()


@pytest.mark.parametrize(
    ("off_ms", "level"),
    [(HOUR_MS, None), (HOUR_MS + 1, logging.WARNING), (7 * DAY_MS, logging.WARNING), (7 * DAY_MS + 1, logging.ERROR)],
)
def test_a_machine_that_was_off_for_some_days_is_a_warning(
    off_ms: int, level: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    known = KnownTime(clock.wall_ms() - clock.boot_ms() - off_ms, 5, "another boot")
    trust = trusting(clock, known)
    assert trust.is_suspect == (level is not None)
    assert [one.levelno for one in caplog.records] == ([] if level is None else [level])


@pytest.mark.parametrize(
    ("ms", "standing"),
    [
        (HOUR_MS, Standing.PLAUSIBLE),
        (HOUR_MS + 1, Standing.AHEAD),
        (-HOUR_MS, Standing.PLAUSIBLE),
        (-HOUR_MS - 1, Standing.BEHIND),
    ],
)
def test_a_jump_up_to_the_key_is_believed(ms: int, standing: Standing) -> None:
    clock = ManualClock()
    trust = trusting(clock)
    jump(clock, ms)
    trust.look()
    assert trust.standing is standing
    assert trust.jump_ms == (ms if trust.is_suspect else 0)


def test_ahead_deletion_goes_by_the_boot_clock_and_behind_by_the_wall_clock() -> None:
    clock = ManualClock()
    trust, began_ms = trusting(clock), clock.wall_ms()
    jump(clock, 30 * DAY_MS)
    clock.advance(5_000)
    assert (trust.deletion_ms(), trust.estimate_ms()) == (began_ms + 5_000, began_ms + 5_000)
    jump(clock, -60 * DAY_MS)
    clock.advance(5_000)
    assert (trust.deletion_ms(), trust.estimate_ms()) == (clock.wall_ms(), began_ms + 10_000)


def test_without_the_key_every_time_is_believed() -> None:
    clock = ManualClock()
    trust = trusting(clock, KnownTime(5), ClockLimits(-1, DAY_MS))
    jump(clock, 30 * DAY_MS)
    assert trust.deletion_ms() == clock.wall_ms()
    assert not trust.is_suspect


def test_many_small_jumps_are_a_large_one() -> None:
    clock = ManualClock()
    trust, began_ms = trusting(clock), clock.wall_ms()
    for _ in range(720):
        jump(clock, HOUR_MS)
        clock.advance(1_000)
        trust.look()
    assert trust.deletion_ms() - began_ms < 2 * HOUR_MS


def test_a_clock_that_is_corrected_now_and_then_is_believed_for_good() -> None:
    clock = ManualClock()
    trust = trusting(clock)
    for correction_ms in (50 * 60_000, -20 * 60_000, 40 * 60_000, 30 * 60_000):
        jump(clock, correction_ms)
        go_on(trust, clock, DAY_MS)
        assert trust.deletion_ms() == clock.wall_ms()


def test_looks_that_follow_each_other_closely_gain_as_much_as_rare_ones() -> None:
    clock = ManualClock()
    trust = trusting(clock)
    jump(clock, 60_000)
    for _ in range(24 * 60_000 // 10):
        clock.advance(10)
        trust.look()
    jump(clock, HOUR_MS)
    trust.look()
    assert trust.standing is Standing.PLAUSIBLE


def test_a_further_jump_begins_the_wait_again_and_a_pause_of_the_broker_does_not_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    trust = trusting(clock)
    jump(clock, 2 * DAY_MS)
    trust.look()
    go_on(trust, clock, DAY_MS - HOUR_MS)
    assert trust.left_ms == HOUR_MS
    jump(clock, 30 * DAY_MS)
    trust.look()
    assert trust.left_ms == DAY_MS
    clock.advance(10 * DAY_MS)  # the process was stopped
    trust.look()
    assert trust.is_suspect
    assert trust.left_ms > DAY_MS - HOUR_MS
    assert len([one for one in caplog.records if one.levelno == logging.ERROR]) == 2


def test_a_clock_that_stays_behind_is_believed_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    trust = trusting(clock)
    jump(clock, -30 * DAY_MS)
    trust.look()
    go_on(trust, clock, DAY_MS)
    assert not trust.is_suspect
    jump(clock, 30 * DAY_MS)
    trust.look()
    assert trust.standing is Standing.AHEAD
    assert [one.levelname for one in caplog.records] == ["WARNING", "WARNING", "ERROR"]


def test_an_operator_releases_what_waits() -> None:
    clock = ManualClock()
    trust = trusting(clock)
    assert trust.trust() == 0
    jump(clock, 30 * DAY_MS)
    assert trust.trust() == 30 * DAY_MS
    assert trust.deletion_ms() == clock.wall_ms()
    jump(clock, -30 * DAY_MS)
    trust.look()
    assert trust.standing is Standing.BEHIND


def test_after_a_boot_the_time_is_the_known_one_and_up_to_the_uptime_later() -> None:
    clock = ManualClock()
    known = trusting(clock).known()
    clock.reboot()
    clock.suspend(20 * DAY_MS)  # the machine has been on without a broker
    assert not trusting(clock, known).is_suspect
    jump(clock, 2 * HOUR_MS)
    assert trusting(clock, known).jump_ms == 2 * HOUR_MS - 1_000  # that the boot took
    jump(clock, -19 * DAY_MS)
    assert not trusting(clock, known).is_suspect
    jump(clock, -2 * DAY_MS)
    assert trusting(clock, known).standing is Standing.BEHIND


def test_a_directory_that_comes_to_a_machine_that_has_been_up_for_months_is_no_jump() -> None:
    known = trusting(ManualClock()).known()
    other = ManualClock()
    other.reboot()
    other.suspend(100 * DAY_MS)
    other.set_wall(known.wall_ms + 5 * 60_000)
    trust = trusting(other, known)
    assert not trust.is_suspect
    jump(other, 2 * HOUR_MS)
    trust.look()
    assert trust.standing is Standing.AHEAD


@pytest.mark.parametrize(("off_ms", "is_suspect"), [(30 * DAY_MS, False), (-DAY_MS, True)])
def test_where_boots_have_no_id_a_boot_clock_that_fits_the_wall_clock_goes_on(off_ms: int, is_suspect: bool) -> None:
    clock = NamelessBoots()
    known = trusting(clock).known()
    if is_suspect:
        jump(clock, 30 * DAY_MS)
    else:
        clock.advance(off_ms)
    assert trusting(clock, known).is_suspect is is_suspect


def test_what_was_waited_counts_after_a_restart() -> None:
    clock = ManualClock()
    trust = trusting(clock)
    jump(clock, 30 * DAY_MS)
    trust.look()
    go_on(trust, clock, DAY_MS // 2)
    known = trust.known()
    assert trusting(clock, known).left_ms == DAY_MS // 2
    clock.reboot(off_ms=2 * DAY_MS)
    assert trusting(clock, known).left_ms == DAY_MS // 2


@given(
    st.lists(
        st.tuples(st.sampled_from(["jump", "pass", "restart", "boot", "trust"]), st.integers(-60, 60)), max_size=40
    )
)
def test_deletion_never_goes_by_a_time_that_both_clocks_do_not_know(acts: list[tuple[str, int]]) -> None:
    """Without `trust`, without waiting, and without a boot it gains what the boot clock counts, and the key."""
    clock = ManualClock(wall_ms=10**12)
    trust, began_ms, passed_ms = trusting(clock), clock.wall_ms(), 0
    for act, days in acts:
        if act == "jump":
            clock.set_wall(max(0, clock.wall_ms() + days * DAY_MS // 3))
        elif act == "pass":
            clock.advance(abs(days) * 1_000)
            passed_ms += abs(days) * 1_000
        elif act == "restart":
            trust = trusting(clock, trust.known())
        elif act == "trust":
            trust.trust()
            began_ms, passed_ms = clock.wall_ms(), 0
        else:
            known = trust.known()
            clock.reboot()
            trust = trusting(clock, known)
        deletion_ms = trust.deletion_ms()
        assert deletion_ms <= clock.wall_ms()
        assert deletion_ms <= began_ms + passed_ms + 3 * HOUR_MS + len(acts) * 1_000


def test_words_for_people() -> None:
    assert shown(0) == "1970-01-01T00:00:00Z"
    assert shown(LAST_MS + 10**15) == "9999-12-31T23:59:59Z"
    assert [duration(ms) for ms in (1_500, 90_000, 5_400_000, 30 * DAY_MS)] == [
        "1.5 s",
        "1.5 minutes",
        "1.5 hours",
        "30.0 days",
    ]
