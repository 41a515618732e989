"""Files that cannot be opened because no descriptor is free: the errors, and the log line that names the limit to
raise.

The shortage ends when a connection ends or a sync releases descriptors. Meanwhile many calls fail, so the line is
logged at most once a minute. Called by `files.py` only, in any thread.
"""

from __future__ import annotations

import errno
import logging
from time import monotonic_ns
from typing import Final

logger = logging.getLogger(__name__)

LINE_EVERY_NS: Final = 60_000_000_000
_ADVICE: Final = {
    errno.EMFILE: "this process may have {limit} open (RLIMIT_NOFILE); `ulimit -n` before it starts, LimitNOFILE= in a"
    " unit of systemd or --ulimit nofile= of a container raises that",
    errno.ENFILE: "the whole system has as many open as fs.file-max allows; sysctl raises that",
    errno.ENOMEM: "the kernel has no memory for another one",
}


class DescriptorShortage:
    """See the module."""

    def __init__(self) -> None:
        self._logged_ns: int | None = None

    def is_one(self, error: OSError) -> bool:
        """Whether an open failed because no descriptor was free."""
        return error.errno in _ADVICE

    def log(self, error: OSError) -> None:
        """Log the shortage, unless that was done within the last minute."""
        now_ns = monotonic_ns()
        if self._logged_ns is not None and now_ns - self._logged_ns < LINE_EVERY_NS:
            return
        self._logged_ns = now_ns
        import resource  # POSIX only, like these errors; modules that clients use import this one

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        logger.error(
            "no file can be opened (%s): %s. Operations that need one are refused or wait, acknowledgements too, until"
            " other files are closed; nothing is lost",
            error.strerror,
            _ADVICE.get(error.errno or 0, "").format(limit=limit),
        )
