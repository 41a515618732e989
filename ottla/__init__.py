"""Ottla: a Kafka broker that you pip install, and the blocking client: `from ottla import Producer, Consumer, Admin`.

The client is imported when one of its names is asked for (PEP 562): `import ottla` alone imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it; `typing` itself would be an import
if TYPE_CHECKING:
    from ottla.client.blocking import Admin, Consumer, Producer

__version__ = "0.1.0.dev0"
"""Said here only: the package's metadata take it from here. Asking importlib.metadata costs a start 20 ms."""

__all__ = ["Admin", "Consumer", "Producer", "__version__"]

_CLIENTS = {"Admin", "Consumer", "Producer"}


def __getattr__(name: str) -> object:
    """Import a client of `ottla.client.blocking` by its name."""
    if name not in _CLIENTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found: object = getattr(importlib.import_module("ottla.client.blocking"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
