"""The limit on the memory of sealed segments' indexes: the least recently used ones unload their entries.

One cache for all logs of a broker. Any thread may look up.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, Protocol

DEFAULT_CACHE_BYTES: Final = 64 * 1024 * 1024


class Unloadable(Protocol):
    """The part of an index that the cache uses."""

    def unload(self) -> None:
        """Drop the entries; they are read again when they are needed."""


class IndexCache:
    """See the module. `bytes` is the current size of all, at most `max_bytes` unless a single index is larger."""

    def __init__(self, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._loaded: OrderedDict[Unloadable, int] = OrderedDict()
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return len(self._loaded)

    def used(self, index: Unloadable, size_bytes: int) -> None:
        """Note that `index` was used and has `size_bytes`; others may be unloaded."""
        with self._guard:
            self.bytes += size_bytes - self._loaded.pop(index, 0)
            self._loaded[index] = size_bytes
            while self.bytes > self.max_bytes and len(self._loaded) > 1:
                oldest, freed = self._loaded.popitem(last=False)
                self.bytes -= freed
                oldest.unload()

    def forget(self, index: Unloadable) -> None:
        """Drop an index that was closed, or is written again."""
        with self._guard:
            self.bytes -= self._loaded.pop(index, 0)
