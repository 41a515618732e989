"""Planted bugs that show where the settings of topics change while these are written to (`settings_changes.py`)."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

from kit.simulator import planting
from kit.simulator.planting import before

from ottla.broker.partitions.partition import Partition
from ottla.storage.log import rewrite
from ottla.storage.log.log import Log

bug = partial(planting.bug, settings=True)


@bug(
    "compressed again without its transaction",
    "a batch that gets another codec is stored as one of no transaction",
    transactions=True,
)
def _without_its_transaction() -> Any:
    def replace(encode: Any) -> Any:
        return lambda records, **given: encode(records, **given | {"is_transactional": False})

    return before(rewrite, "encode_batch", replace)


@bug("a log keeps its former promise", "what a change of `ottla.acks.all` promises counts after a restart only")
def _former_promise() -> Any:
    def replace(configure: Any) -> Any:
        def patched(self: Any, config: Any) -> None:
            known = getattr(self, "_is_synced_before_shown", None)
            configure(self, config)
            if known is not None:
                self._is_synced_before_shown = known

        return patched

    return before(Log, "configure", replace)


@bug("flush.messages holds nothing up", "what it has synced is acknowledged before that")
def _nothing_held_up() -> Any:
    never = property(lambda _: False, lambda *_: None)
    return mock.patch.object(Partition, "holds_acknowledgements", never, create=True)
