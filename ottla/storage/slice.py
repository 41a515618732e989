"""A stretch of one segment's bytes, as Fetch sends it: whole batches, not decoded, not joined, not copied.

Hot bytes come as a view: small ones in memory of their own, large ones as a map of the segment, which only a plaintext `send` may
touch (a page that the disk lost is SIGBUS to whoever reads it; `send` gets EFAULT). Cold bytes come without a view and are
read in a thread (decisions.md 11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.storage.files import File


class LogSlice:
    """What one read of a log gives.

    Attributes:
        view: the bytes, or None when they may have to come from the disk.
        length: number of bytes; 0 when there is nothing at the offset yet.
        is_mapped: `view` is a map of the file: for `send` only, never to be read by our code or TLS.
    """

    __slots__ = ("_file", "_position", "is_mapped", "length", "view")

    def __init__(
        self, view: memoryview | None, length: int, *, is_mapped: bool = False, file: File | None = None, position: int = 0
    ) -> None:
        self.view = view
        self.length = length
        self.is_mapped = is_mapped
        self._file = file
        self._position = position

    def read_blocking(self) -> bytes:
        """The bytes, read from the file; may block on the disk: for a thread, or for where blocking is no harm.

        Raises:
            OSError: the disk failed, or the segment was unlinked and closed in between.
        """
        if self._file is None:
            return bytes(self.view) if self.view is not None else b""
        data = self._file.pread(self.length, self._position)
        if len(data) != self.length:
            raise OSError(f"{self._file.path}: {len(data)} of {self.length} bytes at position {self._position}")
        return data


EMPTY_SLICE = LogSlice(memoryview(b""), 0)
