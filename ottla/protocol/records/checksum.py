"""CRC-32C (Castagnoli, RFC 3720 appendix B.4), the checksum of record batches v2.

`crc32c(buffer, value=0)` takes any contiguous buffer without copying it and continues from `value`. With the `crc32c`
package the processor's instruction computes it (16 KB in 0.7 us); crcmod's table is the fallback on systems for which
that package has no wheel. The import does not report the fallback: `slow_because` has the reason, and a broker logs it
at its start. If neither is installed, as in a Spark executor that has only numpy and pyarrow, a checksum raises
ImportError.
"""

from __future__ import annotations

import importlib.machinery
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.protocol.types import Buffer

__all__ = ["crc32c", "slow_because"]

slow_because: str | None = None
"""The reason why crcmod computes checksums; None if the processor does."""

if TYPE_CHECKING:

    def crc32c(buffer: Buffer, value: int = 0) -> int:
        """Return the CRC-32C of `buffer`, an unsigned 32-bit number, continuing from `value`."""

else:

    def _load_native():
        """Find the extension inside the crc32c package and load it alone.

        The package's `__init__` asks importlib.metadata for its version, which takes 40 ms: more than a tenth of the
        time in which a broker must start.
        """
        package = importlib.machinery.PathFinder.find_spec("crc32c")
        if package is None:
            raise ImportError("crc32c is not installed")
        extension = importlib.machinery.PathFinder.find_spec("_crc32c", package.submodule_search_locations)
        if extension is None:
            raise ImportError("crc32c has no extension module here")
        module = extension.loader.create_module(extension)
        extension.loader.exec_module(module)
        return module.crc32c

    try:
        crc32c = _load_native()
    except ImportError as error:
        slow_because = str(error)
        try:
            import crcmod.predefined

            _table_crc32c = crcmod.predefined.mkCrcFun("crc-32c")
        except ImportError:

            def _table_crc32c(data, value):
                raise ImportError("checksums need the package crc32c, or crcmod: `pip install crc32c`")

        def crc32c(buffer, value=0):
            """Return the CRC-32C of `buffer`, an unsigned 32-bit number, continuing from `value`."""
            return _table_crc32c(bytes(buffer), value)
