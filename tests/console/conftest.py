"""A broker for the tests of a file, and a page of the console for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from kit.console_page import ConsolePage, console_page

from ottla.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
async def page(broker: EmbeddedBroker) -> AsyncIterator[ConsolePage]:
    async with console_page(broker.bootstrap_servers) as found:
        yield found
