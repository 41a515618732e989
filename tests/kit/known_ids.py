"""Ids that a broker draws, from a seed: of topics, directories, members and fetch sessions.

What a saved input names must mean the same when it is replayed, and ids have their say in what happens: their order in
sets, the size of a batch that names them.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest.mock import patch

from ottla.broker.fetch.fetch_sessions import MAX_EPOCH

PLACES = (
    "uuid.uuid4",
    "ottla.broker.groups.classic_rebalance.uuid4",
    "ottla.broker.groups.coordinator.uuid4",
    "ottla.broker.metadata.found_topics.uuid4",
)


@contextmanager
def known_ids(seed: int) -> Iterator[None]:
    """While it is open the same ids come in the same order for the same seed."""
    ids = random.Random(seed)

    def drawn() -> uuid.UUID:
        return uuid.UUID(int=ids.getrandbits(128), version=4)

    with ExitStack() as patches:
        for place in PLACES:
            patches.enter_context(patch(place, drawn))

        def session_ids() -> Callable[[], int]:
            return partial(random.Random(seed).randint, 1, MAX_EPOCH)

        patches.enter_context(patch("ottla.broker.fetch.fetch_sessions.random_ids", session_ids))
        yield
