"""Ottla: a Kafka broker that you pip install, and the blocking client: `from ottla import Producer, Consumer, Admin`.

The client is imported when one of its names is first used (PEP 562): `import ottla` alone imports only its version.
"""

from __future__ import annotations

from ottla.version import __version__

TYPE_CHECKING = False  # as type checkers know it; `typing` itself would be an import
if TYPE_CHECKING:
    from ottla.client.blocking import Admin, Consumer, Producer, ShareConsumer

__all__ = ["Admin", "Consumer", "Producer", "ShareConsumer", "__version__"]

_CLIENTS = {"Admin", "Consumer", "Producer", "ShareConsumer"}


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
