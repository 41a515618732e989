"""CRC-32C (Castagnoli, RFC 3720 appendix B.4), the checksum of record batches v2.

`crc32c(buffer, value=0)` takes any contiguous buffer without copying it and continues from `value`. The processor's
instruction computes it where the `crc32c` package is there (16 KB in 0.7 us); crcmod's table is the way out where that
package has no wheel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.protocol.types import Buffer

__all__ = ["crc32c"]

if TYPE_CHECKING:

    def crc32c(buffer: Buffer, value: int = 0) -> int:
        """Return the CRC-32C of `buffer`, an unsigned 32-bit number, continuing from `value`."""

else:
    try:
        from crc32c import crc32c
    except ImportError:
        import crcmod.predefined

        _table_crc32c = crcmod.predefined.mkCrcFun("crc-32c")

        def crc32c(buffer, value=0):
            """Return the CRC-32C of `buffer`, an unsigned 32-bit number, continuing from `value`."""
            return _table_crc32c(bytes(buffer), value)
