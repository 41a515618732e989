"""A broker for the tests of a file, and a registry with a topic of its own for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kit.registry_api import RegistryApi

from ottla.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"schemas-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def api(broker: EmbeddedBroker, topic: str) -> Iterator[RegistryApi]:
    with broker.schema_registry(topic) as registry:
        yield RegistryApi(registry.url)
