"""Ottla inside tests: `EmbeddedBroker`, a broker in this process with a clock and faults of its own; a pytest plugin.

    from ottla.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        run_the_program(broker.bootstrap_servers)
        assert [record.value for record in broker.records("orders")] == [b"tea"]

The plugin (`plugin.py`) has the fixture `ottla_broker`: a new broker for each test. docs/testing.md shows both. Names
are imported when they are first used: pytest loads the plugin in every run.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it; `typing` itself would be an import
if TYPE_CHECKING:
    from ottla.testing.embedded_broker import EmbeddedBroker
    from ottla.testing.faults import Fault
    from ottla.testing.waiting import NotInTime

__all__ = ["EmbeddedBroker", "Fault", "NotInTime"]

_MODULES = {"EmbeddedBroker": "embedded_broker", "Fault": "faults", "NotInTime": "waiting"}


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found: object = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
