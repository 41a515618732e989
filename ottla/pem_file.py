"""Text as a file for as long as OpenSSL reads it: Python takes keys and certificates from files only.

A key that is inline, or that was decrypted, shall not reach a disk: the file is in memory where the system has such
files, and else readable by this user only, until it is removed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def pem_file(text: str) -> Iterator[str]:
    """The path of a file with this text."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("ottla-tls", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp(prefix="ottla-tls-", suffix=".pem")  # of mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        yield path
    finally:
        Path(path).unlink(missing_ok=True)
