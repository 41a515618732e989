"""Fixtures that every folder of tests may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.broker import BrokerProcess


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of a worker that need no broker of their own: use topic names of your own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker for this test alone, to be restarted, killed or filled."""
    with BrokerProcess(tmp_path / "data") as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.nodeid.split("/")[-1])
    return name[-200:].strip("-")
