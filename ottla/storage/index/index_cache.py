"""The memory that the indexes of sealed segments may hold: those looked at longest ago forget their entries.

One cache for all logs of a broker. Look-ups come from any thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, Protocol

DEFAULT_CACHE_BYTES: Final = 64 * 1024 * 1024


class Unloadable(Protocol):
    """An index as the cache knows it."""

    def unload(self) -> None:
        """Forget the entries; they are read again when they are checked."""


class IndexCache:
    """See the module. `bytes` is what they hold now, at most `max_bytes` but for one that is larger by itself."""

    def __init__(self, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._loaded: OrderedDict[Unloadable, int] = OrderedDict()
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return len(self._loaded)

    def used(self, index: Unloadable, size_bytes: int) -> None:
        """`index` was checked and holds `size_bytes`; others may have to go."""
        with self._guard:
            self.bytes += size_bytes - self._loaded.pop(index, 0)
            self._loaded[index] = size_bytes
            while self.bytes > self.max_bytes and len(self._loaded) > 1:
                oldest, freed = self._loaded.popitem(last=False)
                self.bytes -= freed
                oldest.unload()

    def forget(self, index: Unloadable) -> None:
        """`index` was closed, or is written again."""
        with self._guard:
            self.bytes -= self._loaded.pop(index, 0)
