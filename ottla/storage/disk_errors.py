"""Which errors of a write say "full for now", which say nothing about the disk, and which end writing (decisions.md
4).
"""

from __future__ import annotations

import errno
from typing import Final

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})


def is_full(error: OSError) -> bool:
    """No room: the disk, a quota or a file size limit. It may pass when somebody makes room."""
    return error.errno in _FULL


def is_passing(error: OSError) -> bool:
    """The process lacks descriptors or memory: the disk is not at fault."""
    return error.errno in _PASSING
