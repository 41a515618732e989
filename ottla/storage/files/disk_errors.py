"""Which errors of a write say "full for now", which say nothing about the disk, and which end writing."""

from __future__ import annotations

import errno
import logging
from typing import Final

from ottla.storage.files.file_interface import NotOpened

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})


def is_full(error: OSError) -> bool:
    """No room: the disk, a quota or a file size limit. It may pass when somebody makes room."""
    return error.errno in _FULL


def is_passing(error: OSError) -> bool:
    """The process lacks descriptors or memory: the disk is not at fault. Not for syncs, where only `NotOpened` shows
    that there was none.
    """
    return error.errno in _PASSING


def level_of(error: BaseException, usual: int = logging.ERROR) -> int:
    """At which level to log what an error did: of a want of descriptors every append and read of every log would have a
    line; `descriptor_shortage.py` has one for all.
    """
    return logging.DEBUG if isinstance(error, NotOpened) else usual
