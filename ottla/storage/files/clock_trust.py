"""Decides whether the wall clock can be trusted, and by which time records may be deleted if it cannot.

Retention, the cleaner's tombstones, and the expiry of committed offsets and producers delete what is old by the wall
clock. A wall clock that is wrong for seconds could make everything old. So it is compared with the boot clock, which
never jumps: the trusted `offset` is the difference between the two clocks while the wall clock is right. Within
`ottla.clock.jump.max.ms` of that difference the wall clock is *plausible*. Beyond it, it is

    ahead     deletion uses the boot clock plus the trusted offset, as if the wall clock had not jumped
    behind    deletion uses the wall clock, by which records are old only if they were old before. Records that are
              stamped meanwhile get their real age, also when the clock is right again (`stamped_ms`)

until it returns to plausible, an operator confirms it (`trust`), or it has continued without another jump for
`ottla.clock.trust.after.ms`, of which only time counts while the broker runs. So deletion never uses a time later than
the wall clock's or the trusted one.

The trusted offset follows the wall clock: back immediately, forward by `MOST_GAIN` of the time that has passed, so that
many small jumps are not trusted either. The trusted time survives a restart (`clock_checkpoint.py`). After another boot
of the machine, it is the last known time plus the uptime of that boot. The time that the machine was switched off is
unknown: a wall clock that includes it is plausible only within the same limit.

Pure except for its log lines. All calls except `estimate_ms` are on one thread; all other code that expires things by
the wall clock uses `deletion_ms`, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ottla.storage.files.clock import Clock

logger = logging.getLogger(__name__)

MOST_GAIN: Final = 24
"""The trusted offset grows by one part in this many of the time that passes: an hour a day."""
MOST_COUNTED_MS: Final = 60_000
"""The part of the time between two looks that counts for the wait: a broker that was suspended has not waited."""
STAMPED_EARLIER_MS: Final = 60_000
STAMPED_LATER_MS: Final = 600_000
"""How far outside the stretch of a clock that was behind a timestamp may still be from it: a client buffers records,
and the known time is written every five minutes.
"""
USUAL_OFF_MS: Final = 7 * 86_400_000
"""A machine is often off for up to this time: its start logs a WARNING (a laptop after a weekend) and no ERROR."""
LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: the last moment that is formatted as a date."""


class Standing(Enum):
    """The state of the wall clock relative to the boot clock."""

    PLAUSIBLE = "plausible"
    AHEAD = "ahead"
    BEHIND = "behind"


class ClockLimits(NamedTuple):
    """The configured limits: `ottla.clock.jump.max.ms` (negative: every time is trusted) and
    `ottla.clock.trust.after.ms`.
    """

    jump_max_ms: int
    trust_after_ms: int


class BehindTime(NamedTuple):
    """The last stretch of wall time shown by a clock that was behind, by at most `lag_ms`."""

    from_ms: int = 0
    to_ms: int = 0
    lag_ms: int = 0

    def with_look(self, wall_ms: int, lag_ms: int) -> BehindTime:
        """The stretch extended by one more look, or a new stretch if the clock is elsewhere: a board without a battery
        begins each boot at the same time.
        """
        if self.from_ms - STAMPED_EARLIER_MS <= wall_ms <= self.to_ms + STAMPED_LATER_MS:
            return BehindTime(min(self.from_ms, wall_ms), max(self.to_ms, wall_ms), max(self.lag_ms, lag_ms))
        return BehindTime(wall_ms, wall_ms, lag_ms)


class KnownTime(NamedTuple):
    """The clock's state from an earlier run: the wall time that was trusted at `boot_ms` of the boot `boot_id` (empty
    if unknown), how long a clock that is not trusted had run, and when a clock was behind.
    """

    wall_ms: int
    boot_ms: int = 0
    boot_id: str = ""
    waited_ms: int = 0
    behind: BehindTime = BehindTime()


class ClockTrust:
    """See the module. Call `begin` first."""

    def __init__(self, clock: Clock, limits: Callable[[], ClockLimits]) -> None:
        self._clock = clock
        self._limits = limits
        self._offset_ms = clock.wall_ms() - clock.boot_ms()
        self._looked_ms = clock.boot_ms()
        self._gap_ms = 0
        self._waited_ms = 0
        self._behind = BehindTime()
        self.standing = Standing.PLAUSIBLE

    # -- questions

    def deletion_ms(self) -> int:
        """The time by which old data may be deleted or forgotten. Never later than the wall clock's."""
        wall_ms, believed_ms = self.look()
        return min(wall_ms, believed_ms) if self.standing is Standing.AHEAD else wall_ms

    def estimate_ms(self) -> int:
        """The best estimate of the wall time: for the broker's own timestamps, by which things are later kept. Changes
        nothing, so any thread may call it.
        """
        clock = self._clock
        wall_ms, believed_ms = clock.wall_ms(), clock.boot_ms() + self._offset_ms
        if -1 <= wall_ms - believed_ms <= 1:
            return wall_ms  # both are rounded
        most_ms = self._limits().jump_max_ms
        return believed_ms if 0 <= most_ms < abs(wall_ms - believed_ms) else wall_ms

    def stamped_ms(self, stamp_ms: int) -> int:
        """The time at which a record with this timestamp was made: later, if a clock that was behind has made it."""
        from_ms, to_ms, lag_ms = self._behind
        if lag_ms and from_ms - STAMPED_EARLIER_MS <= stamp_ms <= to_ms + STAMPED_LATER_MS:
            return stamp_ms + lag_ms
        return stamp_ms

    @property
    def is_suspect(self) -> bool:
        """Whether the wall clock was ahead or behind at the last look."""
        return self.standing is not Standing.PLAUSIBLE

    @property
    def jump_ms(self) -> int:
        """By how much it was ahead (behind: negative) at the last look; 0 if it was plausible."""
        return self._gap_ms if self.is_suspect else 0

    @property
    def left_ms(self) -> int:
        """The time until it is trusted as it is; 0 if it is plausible."""
        return max(0, self._limits().trust_after_ms - self._waited_ms) if self.is_suspect else 0

    def known(self) -> KnownTime:
        """The state to store for the next run."""
        boot_ms = self._clock.boot_ms()
        known_ms = boot_ms + self._offset_ms
        return KnownTime(known_ms, boot_ms, self._clock.boot_id(), self._waited_ms, self._behind)

    # -- what happens

    def begin(self, known: KnownTime | None) -> None:
        """Begin at a start of the broker; `known` is None in new directories. Logs an ERROR if the wall clock is ahead,
        a WARNING if the machine may have been off for that long.
        """
        wall_ms, boot_ms, limits = self._clock.wall_ms(), self._clock.boot_ms(), self._limits()
        self._looked_ms = boot_ms
        self._offset_ms = wall_ms - boot_ms
        if known is not None:
            self._behind = known.behind
        if known is None or limits.jump_max_ms < 0:
            return
        is_same_boot = self._is_same_boot(known, wall_ms - boot_ms, boot_ms, limits.jump_max_ms)
        if is_same_boot:
            believed_ms = known.wall_ms + boot_ms - known.boot_ms
        else:
            # This machine has booted since, and its uptime has passed. If the directory was moved to another machine,
            # that may have been up before: then any part of its uptime may have passed since the known time.
            believed_ms = known.wall_ms + (boot_ms if known.boot_id else 0)
            if known.wall_ms <= wall_ms < believed_ms:
                believed_ms = wall_ms
        gap_ms = wall_ms - believed_ms
        if is_same_boot or abs(gap_ms) > limits.jump_max_ms:
            self._offset_ms = believed_ms - boot_ms
        if gap_ms > limits.jump_max_ms:
            self._leave(Standing.AHEAD, gap_ms, known.waited_ms)
            self._say_ahead(
                wall_ms,
                believed_ms,
                "The machine has not been off since, so the clock is wrong now or was then"
                if is_same_boot
                else "Either the machine was off that long, or its clock is wrong",
                logging.WARNING if not is_same_boot and gap_ms <= USUAL_OFF_MS else logging.ERROR,
            )
        elif gap_ms < -limits.jump_max_ms:
            self._leave(Standing.BEHIND, gap_ms, known.waited_ms)
            self._behind = self._behind.with_look(wall_ms, -gap_ms)
            self._say_behind(wall_ms, believed_ms)

    def look(self) -> tuple[int, int]:
        """Compare the clocks now; returns the wall time and the trusted one."""
        wall_ms, boot_ms, limits = self._clock.wall_ms(), self._clock.boot_ms(), self._limits()
        gap_ms = wall_ms - boot_ms - self._offset_ms
        passed_ms = max(0, boot_ms - self._looked_ms)
        if limits.jump_max_ms < 0:
            self._believe(wall_ms - boot_ms)
        elif abs(gap_ms) <= limits.jump_max_ms:
            if self.is_suspect:
                logger.warning("the wall clock is back at %s: time-based deletion uses it again", shown(wall_ms))
            self.standing, self._waited_ms = Standing.PLAUSIBLE, 0
            gain_ms = min(gap_ms, passed_ms // MOST_GAIN)
            self._offset_ms += gain_ms
            if gain_ms < gap_ms:
                self._looked_ms = boot_ms - passed_ms % MOST_GAIN  # looks that follow closely gain together
                return wall_ms, boot_ms + self._offset_ms
        else:
            self._doubt(wall_ms, boot_ms, gap_ms, min(passed_ms, MOST_COUNTED_MS))
        self._looked_ms = boot_ms
        return wall_ms, boot_ms + self._offset_ms

    def trust(self) -> int:
        """Trust the wall clock as it is, for an operator; returns by how much it was ahead (behind: negative)."""
        wall_ms, _ = self.look()
        jump_ms = self.jump_ms
        if self.is_suspect:
            logger.warning(
                "the wall clock, %s, is trusted because an operator says so: time-based deletion uses it",
                shown(wall_ms),
            )
        self._believe(wall_ms - self._clock.boot_ms())
        return jump_ms

    # -- below

    def _is_same_boot(self, known: KnownTime, offset_ms: int, boot_ms: int, jump_max_ms: int) -> bool:
        """Whether the boot clock still counts from the same moment as when `known` was written. If boots have no id, it
        does if the wall clock agrees: both would have to be wrong by the same amount.
        """
        boot_id = self._clock.boot_id()
        if boot_id != known.boot_id or not 0 < known.boot_ms <= boot_ms:
            return False
        return bool(boot_id) or abs(offset_ms - (known.wall_ms - known.boot_ms)) <= jump_max_ms

    def _doubt(self, wall_ms: int, boot_ms: int, gap_ms: int, passed_ms: int) -> None:
        """Handle a wall clock that is not plausible."""
        limits, believed_ms = self._limits(), boot_ms + self._offset_ms
        standing = Standing.AHEAD if gap_ms > 0 else Standing.BEHIND
        if standing is not self.standing or abs(gap_ms - self._gap_ms) > limits.jump_max_ms:
            self._leave(standing, gap_ms, 0)
            if standing is Standing.AHEAD:
                self._say_ahead(wall_ms, believed_ms, "The boot clock says that so much time has not passed")
            else:
                self._say_behind(wall_ms, believed_ms)
        else:
            self._waited_ms += passed_ms
        if standing is Standing.BEHIND:
            self._behind = self._behind.with_look(wall_ms, -gap_ms)
        if self._waited_ms >= limits.trust_after_ms:
            logger.warning(
                "the wall clock, %s, has continued without a jump for ottla.clock.trust.after.ms=%d and is trusted:"
                " time-based deletion uses it",
                shown(wall_ms),
                limits.trust_after_ms,
            )
            self._believe(wall_ms - boot_ms)

    def _believe(self, offset_ms: int) -> None:
        self._offset_ms, self._waited_ms, self._gap_ms = offset_ms, 0, 0
        self.standing = Standing.PLAUSIBLE

    def _leave(self, standing: Standing, gap_ms: int, waited_ms: int) -> None:
        self.standing, self._gap_ms, self._waited_ms = standing, gap_ms, waited_ms

    def _say_ahead(self, wall_ms: int, believed_ms: int, reason: str, level: int = logging.ERROR) -> None:
        logger.log(
            level,
            "the wall clock, %s, is %s ahead of the time that this broker knows, %s. %s. Time-based deletion"
            " (retention.ms, delete.retention.ms, expiry of offsets and of producer ids) waits: it uses the known"
            " time until the clock comes back, until `ottla log trust-clock` confirms the clock, or for %s"
            " (ottla.clock.trust.after.ms); docs/clock.md",
            shown(wall_ms),
            duration(self._gap_ms),
            shown(believed_ms),
            reason,
            duration(self.left_ms),
        )

    def _say_behind(self, wall_ms: int, believed_ms: int) -> None:
        logger.warning(
            "the wall clock, %s, is %s behind the time that this broker knows, %s: until it comes back"
            " nothing becomes old enough to be deleted by time; docs/clock.md",
            shown(wall_ms),
            duration(-self._gap_ms),
            shown(believed_ms),
        )


def shown(wall_ms: int) -> str:
    """A wall time as text: `2026-11-22T16:25:03Z`."""
    moment = datetime.fromtimestamp(min(max(0, wall_ms), LAST_MS) // 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def duration(ms: int) -> str:
    """A duration as text, in its largest unit: `30.0 days`, `1.5 hours`, `3.0 s`."""
    for unit, unit_ms in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000)):
        if ms >= unit_ms:
            return f"{ms / unit_ms:.1f} {unit}"
    return f"{ms / 1000:.1f} s"
