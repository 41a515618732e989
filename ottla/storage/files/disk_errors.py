"""Classifies the errors of a write: the disk is full, the disk is not the cause, or writing must end."""

from __future__ import annotations

import errno
import logging
from typing import Final

from ottla.storage.files.file_interface import NotOpened

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})


def is_full(error: OSError) -> bool:
    """Whether there is no room: on the disk, in a quota or a file size limit. Passes when space is freed."""
    return error.errno in _FULL


def is_passing(error: OSError) -> bool:
    """Whether the process lacks descriptors or memory: the disk is not the cause. Not for syncs, where only `NotOpened`
    shows that no sync was tried.
    """
    return error.errno in _PASSING


def level_of(error: BaseException, usual: int = logging.ERROR) -> int:
    """The level at which to log the effect of an error. A lack of descriptors would cause a line for every append and
    read of every log; `descriptor_shortage.py` logs one for all.
    """
    return logging.DEBUG if isinstance(error, NotOpened) else usual
