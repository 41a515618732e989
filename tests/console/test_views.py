"""Topics, groups, brokers and writing, from a broker; and a broker that is away."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from kit.console_page import ConsolePage, console_page

from ottla.client import Admin, ApiVersionRange, Consumer, ErrorCode, KafkaError, ShareConsumer
from ottla.console import reading
from ottla.console.api_versions import api_versions
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.testing import EmbeddedBroker


def make_topic(broker: EmbeddedBroker, **configs: str) -> str:
    topic = broker.create_topic(partitions=2, configs={key.replace("_", "."): value for key, value in configs.items()})
    broker.send(topic, b"tea", b"coffee", b"cocoa", key=b"anna", partition=1)
    return topic


async def test_topics_have_records_sizes_and_policies(broker: EmbeddedBroker, page: ConsolePage) -> None:
    topic = await asyncio.to_thread(make_topic, broker, cleanup_policy="compact")
    answer = await page.get("topics")
    (row,) = [one for one in answer["topics"] if one["name"] == topic]
    size = row.pop("bytes")
    assert row == {"name": topic, "internal": False, "partitions": 2, "records": 3, "policy": "compact"}
    assert size > 60
    assert answer["notes"] == []


async def test_a_topic_has_its_partitions_and_where_its_configuration_comes_from(
    broker: EmbeddedBroker, page: ConsolePage
) -> None:
    topic = await asyncio.to_thread(make_topic, broker, retention_ms="86400000")
    answer = await page.get(f"topics/{topic}")
    found = [(one["partition"], one["leader"], one["start"], one["end"]) for one in answer["partitions"]]
    assert found == [(0, 1, 0, 0), (1, 1, 0, 3)]
    configs = {one["name"]: one for one in answer["configs"]}
    assert (configs["retention.ms"]["value"], configs["retention.ms"]["source"]) == ("86400000", "topic")
    assert (configs["cleanup.policy"]["default"], configs["cleanup.policy"]["source"]) == (True, "default")


async def test_a_topic_with_more_partitions_than_can_be_merged_says_so_and_is_read_one_by_one(
    broker: EmbeddedBroker, page: ConsolePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await asyncio.to_thread(make_topic, broker)
    monkeypatch.setattr(reading, "MOST_PARTITIONS", 2)
    assert (await page.get(f"topics/{topic}"))["can_merge"] is True
    monkeypatch.setattr(reading, "MOST_PARTITIONS", 1)
    assert (await page.get(f"topics/{topic}"))["can_merge"] is False
    assert await page.refused(f"topics/{topic}/records") == (
        400,
        f"{topic} has 2 partitions: choose one, 1 can be merged",
    )
    assert len((await page.get(f"topics/{topic}/records?partition=1"))["records"]) == 3


async def test_the_groups_of_a_topic_have_their_lag(broker: EmbeddedBroker, page: ConsolePage) -> None:
    topic = await asyncio.to_thread(make_topic, broker)
    async with Consumer(broker.bootstrap_servers, group_id="billing") as consumer:
        consumer.assign([(topic, 1)])
        await consumer.commit({(topic, 1): 1})  # type: ignore[dict-item]
    answer = await page.get(f"topics/{topic}/groups")
    assert answer["groups"] == [{"group": "billing", "state": "Empty", "type": "classic", "partitions": 1, "lag": 2}]
    group = await page.get("groups/billing")
    assert [(one["partition"], one["committed"], one["lag"]) for one in group["partitions"]] == [
        (0, None, None),
        (1, 1, 2),
    ]
    assert group["findings"][0]["text"] == "it has no members; 2 records wait for it"
    assert group["findings"][0]["weight"] == "cause"


async def test_a_share_group_has_its_members_and_lag(broker: EmbeddedBroker, page: ConsolePage) -> None:
    topic = await asyncio.to_thread(make_topic, broker)
    async with ShareConsumer(broker.bootstrap_servers, group_id="packers") as consumer:
        consumer.subscribe([topic])
        await consumer.getmany(timeout_ms=100)
        async with asyncio.timeout(20):
            while not (group := await page.get("groups/packers"))["members"][0]["assignment"]:
                await consumer.getmany(timeout_ms=100)
        assert (group["type"], group["state"], len(group["partitions"])) == ("share", "Stable", 2)
    rows = {one["group"]: one for one in (await page.get("groups"))["groups"]}
    assert rows["packers"]["type"] == "share"


async def test_a_group_that_does_not_exist_is_404(page: ConsolePage) -> None:
    assert await page.refused("groups/nobody") == (404, "there is no group nobody")


async def test_a_broker_has_directories_features_and_what_is_configured(
    broker: EmbeddedBroker, page: ConsolePage
) -> None:
    answer = await page.get("brokers")
    (one,) = answer["brokers"]
    assert f"{one['host']}:{one['port']}" == broker.bootstrap_servers
    assert [directory["error"] for directory in one["directories"]] == [None]
    assert {"listeners", "log.dirs"} <= {entry["name"] for entry in one["configs"]}
    assert "transaction.version" in {feature["name"] for feature in answer["features"]}


async def test_a_broker_has_the_versions_of_its_apis(broker: EmbeddedBroker, page: ConsolePage) -> None:
    answer = await page.get("brokers")
    (node,) = [one["id"] for one in answer["brokers"]]
    apis = {one["name"]: one for one in answer["apis"]}
    assert list(apis) == sorted(apis)
    fetch = REGISTRY[ApiKey.FETCH]
    assert apis["Fetch"] == {
        "key": 1,
        "name": "Fetch",
        "ranges": [{"least": fetch.min_version, "highest": fetch.max_version, "brokers": [node]}],
    }
    (metadata,) = [one for one in answer["features"] if one["name"] == "metadata.version"]
    assert (metadata["level"], metadata["release"], metadata["highest_release"]) == (27, "4.1-IV1", "4.4-IV2")
    assert {one["release"] for one in answer["features"] if one is not metadata} == {None}


async def test_brokers_that_differ_are_named_and_an_unknown_api_has_no_name() -> None:
    class Versions:
        async def describe_api_versions(self, node_id: int) -> list[ApiVersionRange]:
            if node_id == 3:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
            more = [ApiVersionRange(9999, None, 0, 0)] if node_id == 2 else []
            return [ApiVersionRange(1, "Fetch", 4, 16 + node_id), ApiVersionRange(0, "Produce", 3, 13), *more]

    notes: list[str] = []
    assert await api_versions(cast("Admin", Versions()), [1, 2, 3], notes) == [
        {
            "key": 1,
            "name": "Fetch",
            "ranges": [
                {"least": 4, "highest": 17, "brokers": [1]},
                {"least": 4, "highest": 18, "brokers": [2]},
            ],
        },
        {"key": 0, "name": "Produce", "ranges": [{"least": 3, "highest": 13, "brokers": [1, 2]}]},
        {"key": 9999, "name": None, "ranges": [{"least": 0, "highest": 0, "brokers": [2]}]},
    ]
    (note,) = notes
    assert note.startswith("API versions of broker 3: ")


@pytest.mark.parametrize(
    ("content", "key", "value", "headers"),
    [
        ({"value": {"text": "für"}}, None, "für".encode(), ()),
        (
            {"key": {"text": ""}, "value": {"base64": "/wA="}, "headers": [["h", {"text": "1"}], ["n", None]]},
            b"",
            b"\xff\x00",
            (("h", b"1"), ("n", None)),
        ),
        ({"key": {"text": "gone"}, "value": None}, b"gone", None, ()),
    ],
)
async def test_a_record_is_written(
    broker: EmbeddedBroker,
    page: ConsolePage,
    content: dict[str, Any],
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
) -> None:
    topic = await asyncio.to_thread(lambda: broker.create_topic(partitions=2))
    status, answer = await page.post(f"topics/{topic}/records", {**content, "partition": 1})
    assert (status, answer["partition"], answer["offset"]) == (200, 1, 0)
    (record,) = await asyncio.to_thread(broker.records, topic)
    assert (record.partition, record.key, record.value, record.headers) == (1, key, value, headers)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ([], "the body must be an object with key, value, headers and partition"),
        ({"valu": None}, "unknown field 'valu'"),
        ({"value": "tea"}, 'value must be null, {"text": "…"} or {"base64": "…"}'),
        ({"value": {"base64": "?"}}, "value is not base64"),
        ({"value": {"text": "\ud800"}}, "value has half of a character"),
        ({"headers": [["\ud800", None]]}, "the name of header '\\ud800' has half of a character"),
        ({"headers": {"a": None}}, "headers must be a list of at most 100 pairs"),
        ({"headers": [["a"]]}, "a header must be a pair of a name and a value"),
        ({"partition": "1"}, "partition must be a number or null"),
        ({"partition": True}, "partition must be a number or null"),
    ],
)
async def test_a_record_that_cannot_be_is_refused(page: ConsolePage, content: object, line: str) -> None:
    assert await page.post("topics/any/records", content) == (400, {"error": line})


async def test_a_partition_that_does_not_exist_is_refused(broker: EmbeddedBroker, page: ConsolePage) -> None:
    topic = await asyncio.to_thread(broker.create_topic)
    status, answer = await page.post(f"topics/{topic}/records", {"value": None, "partition": 9})
    assert status == 400
    assert "9" in answer["error"]


async def test_what_the_user_may_not_see_is_a_note_and_the_rest_is_shown(
    broker: EmbeddedBroker, page: ConsolePage
) -> None:
    topic = await asyncio.to_thread(make_topic, broker)
    with broker.fail("DescribeLogDirs", "CLUSTER_AUTHORIZATION_FAILED", times=None):
        answer = await page.get("topics")
        (row,) = [one for one in answer["topics"] if one["name"] == topic]
        assert (row["bytes"], row["records"]) == (None, 3)
        (note,) = answer["notes"]
        assert note.startswith("sizes: ")
        assert note.endswith("(CLUSTER_AUTHORIZATION_FAILED)")


async def test_a_broker_that_is_away_is_a_line_and_its_return_is_noticed() -> None:
    broker = EmbeddedBroker()
    await asyncio.to_thread(broker.start)
    try:
        async with console_page(broker.bootstrap_servers, timeout_ms=1_000) as page:
            assert (await page.get("status"))["servers"] == broker.bootstrap_servers
            await asyncio.to_thread(broker.create_topic, "orders")
            await asyncio.to_thread(broker.stop)
            status, line = await page.refused("status")
            assert status == 502
            assert "\n" not in line
            status, _ = await page.refused("topics/orders/records")
            assert status == 502
            await asyncio.to_thread(broker.start)
            while (await page.ask("GET", "status"))[0] == 502:
                await asyncio.sleep(
                    0
                )  # the page asks again, too: the client's pause before it connects may not be over
            assert (await page.get("status"))["servers"] == broker.bootstrap_servers
            assert (await page.post("topics/orders/records", {"value": {"text": "tea"}}))[0] == 200
            assert len((await page.get("topics/orders/records"))["records"]) == 1
    finally:
        await asyncio.to_thread(broker.close)
