"""pytest imports Ottla's modules as they are, although the distribution has a plugin."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader

import ottla.protocol.message


def test_the_assertions_of_ottla_are_not_rewritten() -> None:
    """Rewriting takes seconds in each new environment. Other loaders than Python's own are pytest's."""
    spec = ottla.protocol.message.__spec__
    assert spec is not None
    assert type(spec.loader) is SourceFileLoader
