"""Fixtures for the tests of storage."""

from __future__ import annotations

import pytest
from kit.log_dirs import World


@pytest.fixture
def world() -> World:
    """A broker with one log directory, `/one`, on a simulated disk."""
    return World()
