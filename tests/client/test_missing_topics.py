"""A subscription to a topic that cannot be read: the log says so once, and it is read when it appears."""

from __future__ import annotations

import asyncio
import logging

import pytest
from kit.command import run as run_command

from ottla.client import Admin, Consumer, ConsumerRecord, Producer, ShareConsumer
from ottla.client.missing_topics import MissingTopics
from ottla.client_core.topic_metadata import TopicMetadata
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import ZERO_UUID

WAIT_MS = 20_000
LOGGER = "ottla.client.missing_topics"


def known(**errors: ErrorCode) -> dict[str, TopicMetadata]:
    return {name: TopicMetadata(name, ZERO_UUID, False, {}, error) for name, error in errors.items()}


UNKNOWN, DENIED, THERE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger=LOGGER)
    return caplog


def warnings(said: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in said.records if one.name == LOGGER and one.levelno == logging.WARNING]


# --- what is said ----------------------------------------------------------------------------------------------------


def test_each_missing_topic_is_named_once(said: pytest.LogCaptureFixture) -> None:
    missing = MissingTopics("group billing")
    for _ in range(3):
        missing.look({"a", "b", "c"}, known(a=UNKNOWN, b=THERE, c=UNKNOWN))
    rest = "nothing is read from it before it is created (or subscribe to another name)"
    assert said.messages == [f"group billing: there is no topic {name}: {rest}" for name in "ac"]


def test_a_topic_that_appears_is_not_a_warning_and_one_that_is_deleted_again_is(said: pytest.LogCaptureFixture) -> None:
    missing = MissingTopics("group billing")
    for error in (UNKNOWN, THERE, THERE, UNKNOWN):
        missing.look({"a"}, known(a=error))
    assert [record.levelname for record in said.records] == ["WARNING", "INFO", "WARNING"]
    assert said.messages[1] == "group billing: topic a exists now"


def test_what_is_no_longer_subscribed_to_is_forgotten(said: pytest.LogCaptureFixture) -> None:
    missing = MissingTopics("group billing")
    for topics in ({"a"}, set(), {"a"}):
        missing.look(topics, known(a=UNKNOWN))
    assert len(warnings(said)) == 2


def test_a_topic_that_the_user_may_not_see_is_named_with_the_reason(said: pytest.LogCaptureFixture) -> None:
    MissingTopics("group billing").look({"a"}, known(a=DENIED))
    assert warnings(said) == [
        f"group billing: nothing is read from topic a: {DENIED.message} (TOPIC_AUTHORIZATION_FAILED)"
    ]


def test_what_passes_by_itself_is_not_named(said: pytest.LogCaptureFixture) -> None:
    MissingTopics("group billing").look({"a", "b"}, known(a=ErrorCode.LEADER_NOT_AVAILABLE))
    assert said.messages == []


def test_a_topic_that_may_be_created_for_the_question_gets_a_second_look(said: pytest.LogCaptureFixture) -> None:
    missing = MissingTopics("group billing", may_appear=True)
    missing.look({"a", "b"}, known(a=UNKNOWN, b=UNKNOWN))
    assert said.messages == []
    missing.look({"a", "b"}, known(a=THERE, b=UNKNOWN))
    assert [one.split(":")[1] for one in said.messages] == [" there is no topic b"]


# --- against a broker ------------------------------------------------------------------------------------------------


async def until_warned(said: pytest.LogCaptureFixture, consumer: Consumer | ShareConsumer) -> list[str]:
    async with asyncio.timeout(WAIT_MS / 1000):
        while not warnings(said):
            await consumer.getmany(timeout_ms=50)
    return warnings(said)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_consumer_says_what_it_waits_for_and_reads_it_when_it_appears(broker, topic, said, protocol) -> None:
    options = {"group_id": f"g-{topic}", "group_protocol": protocol, "auto_offset_reset": "earliest"}
    async with Consumer(broker.bootstrap, metadata_max_age_ms=200, **options) as consumer:
        consumer.subscribe([topic])
        assert (await until_warned(said, consumer))[0].startswith(f"group g-{topic}: there is no topic {topic}: ")
        await consumer.getmany(timeout_ms=600)  # and the next answers say nothing
        await create_with_a_record(broker, topic)
        assert (await first_of(consumer)).value == b"x"
    assert len(warnings(said)) == 1


async def test_a_share_consumer_says_what_it_waits_for(broker, topic, said) -> None:
    async with ShareConsumer(broker.bootstrap, group_id=f"g-{topic}", metadata_max_age_ms=200) as consumer:
        consumer.subscribe([topic])
        (line,) = await until_warned(said, consumer)
        assert line.startswith(f"share group g-{topic}: there is no topic {topic}: ")
        await consumer.getmany(timeout_ms=600)
    assert len(warnings(said)) == 1


async def first_of(consumer: Consumer) -> ConsumerRecord:
    async with asyncio.timeout(WAIT_MS / 1000):
        return await consumer.getone()


async def create_with_a_record(broker, topic: str) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(topic, partitions=1, replication_factor=1)
    async with Producer(broker.bootstrap) as producer:
        await producer.send_and_wait(topic, b"x")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_deleted_topic_holds_up_no_automatic_commit(broker, topic, said, protocol) -> None:
    """Its offsets were sent for half a minute, for which the rebalance, and the end, had to wait."""
    said.set_level(logging.INFO, logger="ottla.client")
    await create_with_a_record(broker, topic)
    options = {"group_id": f"g-{topic}", "group_protocol": protocol, "auto_offset_reset": "earliest"}
    async with Consumer(broker.bootstrap, auto_commit_interval_ms=600_000, **options) as consumer:
        consumer.subscribe([topic])
        assert (await first_of(consumer)).value == b"x"
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_topics([topic])
        await until_warned(said, consumer)
    assert not [one for one in said.messages if "commit of" in one]


async def test_the_command_ends_with_one_line_for_a_missing_topic(broker, topic) -> None:
    for more in ((), ("--group", "g"), ("--share-group", "sg")):
        said = await asyncio.to_thread(run_command, "consume", topic, *more, "-b", broker.bootstrap)
        assert said.status == 1
        assert said.line.startswith(f"ottla: there is no topic {topic}: ")
        assert said.line.endswith(f"`ottla topics create {topic}` (UNKNOWN_TOPIC_OR_PARTITION)")
