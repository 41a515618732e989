"""The console with the properties file of an application: it looks on, and takes nothing from the application."""

from __future__ import annotations

import asyncio

from kit.console_page import console_page

from ottla import Producer
from ottla.testing import EmbeddedBroker


async def test_a_reading_commits_nothing_for_the_group_of_a_file(broker: EmbeddedBroker) -> None:
    await asyncio.to_thread(broker.send, "orders", b"tea", b"coffee")
    file = {"group_id": "shop", "group_instance_id": "shop-1", "enable_auto_commit": True}
    async with console_page(broker.bootstrap_servers, of_file=file) as page:
        assert len((await page.get("topics/orders/records"))["records"]) == 2
        reader, writer = await page.open("GET", "/api/topics/orders/tail")
        await reader.readuntil(b"\r\n\r\n")
        await reader.readline()
        writer.close()
    assert await asyncio.to_thread(broker.committed, "shop") == {}
    assert await asyncio.to_thread(broker.admin.list_groups) == []


async def test_a_written_record_does_not_fence_the_producer_of_a_file(broker: EmbeddedBroker) -> None:
    def commit_with(application: Producer) -> None:
        application.begin_transaction()
        application.send("paid", b"tea").result()
        application.commit_transaction()

    with Producer(broker.bootstrap_servers, transactional_id="shop") as application:
        await asyncio.to_thread(commit_with, application)
        async with console_page(broker.bootstrap_servers, of_file={"transactional_id": "shop"}) as page:
            status, answer = await page.post("topics/paid/records", {"value": {"text": "coffee"}})
            assert status == 200, answer
        await asyncio.to_thread(commit_with, application)
