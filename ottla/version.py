"""The version of this package. It is stated only here; the distribution's metadata take it from here.

No code asks `importlib.metadata` for it: a copy of the package in a zip for Spark's executors, or in a frozen program,
has no metadata, and asking takes 20 ms of a start.
"""

from __future__ import annotations

__version__ = "0.1.0.dev0"
