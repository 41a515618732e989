"""A `random.Random` whose choices are somebody's bytes, so that a fuzzer that changes bytes changes choices."""

from __future__ import annotations

import random


class BytesRandom(random.Random):
    """Takes bits from the front of `data`; once they are used up it continues by a generator that they seed."""

    def __new__(cls, data: bytes) -> BytesRandom:  # Random's own would hash its argument
        return super().__new__(cls)

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data = data
        self._at = 0
        self._rest = random.Random(data)

    def getrandbits(self, k: int) -> int:
        size = (k + 7) // 8
        piece = self._data[self._at : self._at + size]
        self._at += size
        if len(piece) < size:
            return self._rest.getrandbits(k)
        return int.from_bytes(piece, "big") >> (8 * size - k)

    def random(self) -> float:
        return self.getrandbits(16) / 65536
