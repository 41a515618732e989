"""A text as a file while OpenSSL reads it: Python loads keys and certificates only from files.

A key that is inline, or that was decrypted, must not reach a disk. The file is in memory where the system has such
files; otherwise only this user can read it, until it is removed.
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
