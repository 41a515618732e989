"""Whether the wall clock may be believed, and by which time records may be deleted where it may not.

Retention, the cleaner's tombstones, and the expiry of committed offsets and producers delete what is old by the wall
clock. A wall clock that is wrong for seconds would make everything old. So its progress is held against the boot clock,
which never jumps: `offset` is what the wall clock is ahead of the boot clock when it can be believed. Within
`ottla.clock.jump.max.ms` of that the wall clock is *plausible*. Beyond it, it is

    ahead     deletion goes by the boot clock plus the believed offset, as if the wall clock had not jumped
    behind    deletion goes by the wall clock: nothing is old by it, but what was old before that. What is stamped
              meanwhile is considered as old as it is, also when the clock is right again (`stamped_ms`)

until it comes back, somebody says that it is right (`trust`), or it has gone on without another jump for
`ottla.clock.trust.after.ms`, of which only time counts in which the broker runs. Deletion so never goes by a time later
than the wall clock's or the believed one.

The believed offset follows the wall clock: back at once, forward by `MOST_GAIN` of the time that has passed, so that
many small jumps are not believed either. What is believed survives a restart (`clock_checkpoint.py`): after another
boot of the machine the time is what was known then plus what the boot clock has counted since, and what it was off.

Pure but for its log lines. All calls but `estimate_ms` on one thread; whatever else expires by the wall clock asks
`deletion_ms`, too.
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
"""The believed offset grows by one part in so many of the time that passes: an hour a day."""
MOST_COUNTED_MS: Final = 60_000
"""Of the time between two looks so much counts for the wait: a broker that was suspended has not waited."""
STAMPED_EARLIER_MS: Final = 60_000
STAMPED_LATER_MS: Final = 600_000
"""How far beyond the time that was seen to be behind stamps may be of it: a client buffers records, and what is known
of the time is written every five minutes.
"""
USUAL_OFF_MS: Final = 7 * 86_400_000
"""A machine is often off for so long; its start is a WARNING, which a laptop logs after a weekend, and no ERROR."""
LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: the last moment that is shown as a date."""


class Standing(Enum):
    """How the wall clock stands to what the boot clock says."""

    PLAUSIBLE = "plausible"
    AHEAD = "ahead"
    BEHIND = "behind"


class ClockLimits(NamedTuple):
    """What the configuration says: `ottla.clock.jump.max.ms` (negative: every time is believed) and
    `ottla.clock.trust.after.ms`.
    """

    jump_max_ms: int
    trust_after_ms: int


class BehindTime(NamedTuple):
    """The last stretch of wall time that was shown by a clock that was behind by `lag_ms` (at most)."""

    from_ms: int = 0
    to_ms: int = 0
    lag_ms: int = 0

    def with_look(self, wall_ms: int, lag_ms: int) -> BehindTime:
        """The stretch with one look more; a new one where the clock is elsewhere. A board begins again with each boot,
        always at the same time.
        """
        if self.from_ms - STAMPED_EARLIER_MS <= wall_ms <= self.to_ms + STAMPED_LATER_MS:
            return BehindTime(min(self.from_ms, wall_ms), max(self.to_ms, wall_ms), max(self.lag_ms, lag_ms))
        return BehindTime(wall_ms, wall_ms, lag_ms)


class KnownTime(NamedTuple):
    """What an earlier life has left: the wall time that was believed at `boot_ms` of the boot `boot_id` (empty where
    that is not known), how long a clock that was not believed had gone on, and when one was behind.
    """

    wall_ms: int
    boot_ms: int = 0
    boot_id: str = ""
    waited_ms: int = 0
    behind: BehindTime = BehindTime()


class ClockTrust:
    """See the module. `begin` before anything else."""

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
        """The wall time by which may be deleted, or forgotten, what is old. Never later than the wall clock's."""
        wall_ms, believed_ms = self.look()
        return min(wall_ms, believed_ms) if self.standing is Standing.AHEAD else wall_ms

    def estimate_ms(self) -> int:
        """The wall time as well as it is known: for stamps of the broker's own, by which something is kept later.
        Changes nothing, so any thread may ask.
        """
        clock = self._clock
        wall_ms, believed_ms = clock.wall_ms(), clock.boot_ms() + self._offset_ms
        if -1 <= wall_ms - believed_ms <= 1:
            return wall_ms  # both are rounded
        most_ms = self._limits().jump_max_ms
        return believed_ms if 0 <= most_ms < abs(wall_ms - believed_ms) else wall_ms

    def stamped_ms(self, stamp_ms: int) -> int:
        """When a record was made that is stamped so: later, where a clock that was behind has made the stamp."""
        from_ms, to_ms, lag_ms = self._behind
        if lag_ms and from_ms - STAMPED_EARLIER_MS <= stamp_ms <= to_ms + STAMPED_LATER_MS:
            return stamp_ms + lag_ms
        return stamp_ms

    @property
    def is_suspect(self) -> bool:
        """Whether the wall clock is ahead or behind, as of the last look."""
        return self.standing is not Standing.PLAUSIBLE

    @property
    def jump_ms(self) -> int:
        """By how much it is ahead (behind: negative), as of the last look; 0 where it is plausible."""
        return self._gap_ms if self.is_suspect else 0

    @property
    def left_ms(self) -> int:
        """How long until it is believed as it is; 0 where it is plausible."""
        return max(0, self._limits().trust_after_ms - self._waited_ms) if self.is_suspect else 0

    def known(self) -> KnownTime:
        """What the next life should know."""
        boot_ms = self._clock.boot_ms()
        known_ms = boot_ms + self._offset_ms
        return KnownTime(known_ms, boot_ms, self._clock.boot_id(), self._waited_ms, self._behind)

    # -- what happens

    def begin(self, known: KnownTime | None) -> None:
        """A broker starts; `known` is None in new directories. Logs an ERROR where the wall clock is ahead, a WARNING
        where the machine may have been off for so long.
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
            # This machine has started since, and been up so long; another one, which got the directory, may have been
            # up before: the time is any from what was known on, up to that.
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
        """Compare the clocks now; the wall time, and the believed one."""
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
        """Somebody says that the wall clock is right as it is; by how much it was ahead (behind: negative)."""
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
        """Whether the boot clock still counts from where it did when `known` was written. Where boots have no id, it
        does if the wall clock fits that: both would have to be wrong by the same.
        """
        boot_id = self._clock.boot_id()
        if boot_id != known.boot_id or not 0 < known.boot_ms <= boot_ms:
            return False
        return bool(boot_id) or abs(offset_ms - (known.wall_ms - known.boot_ms)) <= jump_max_ms

    def _doubt(self, wall_ms: int, boot_ms: int, gap_ms: int, passed_ms: int) -> None:
        """The wall clock is not plausible."""
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
            " (retention.ms, delete.retention.ms, expiry of offsets and of producer ids) waits: it goes by the known"
            " time until the clock comes back, `ottla log trust-clock` says that the clock is right, or in %s"
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
    """A wall time for people: `2026-11-22T16:25:03Z`."""
    moment = datetime.fromtimestamp(min(max(0, wall_ms), LAST_MS) // 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def duration(ms: int) -> str:
    """A stretch of time for people, in its largest unit: `30.0 days`, `1.5 hours`, `3.0 s`."""
    for unit, unit_ms in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000)):
        if ms >= unit_ms:
            return f"{ms / unit_ms:.1f} {unit}"
    return f"{ms / 1000:.1f} s"
