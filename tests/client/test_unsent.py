"""Records that wait when the event loop ends are lost, and the log says how many: no `close` was awaited."""

from __future__ import annotations

import asyncio
import gc
import os

import pytest

from ottla.client import Producer


def run_and_drop(bootstrap: str, topic: str, *, closes: bool) -> None:
    async def send() -> None:
        producer = Producer(bootstrap, linger_ms=60_000)
        await producer.start()
        for number in range(3):
            await producer.send(topic, b"%d" % number)
        if closes:
            await producer.close()

    asyncio.run(send())
    gc.collect()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "ottla.client.producer"]


def test_a_producer_that_is_open_when_its_loop_ends_counts_what_was_not_sent(broker, topic, caplog):
    run_and_drop(broker.bootstrap, topic, closes=False)
    assert warnings(caplog) == [
        f"3 records were not sent to {broker.bootstrap} when the event loop ended: "
        "call `await close()` or use `async with`, which wait for them and raise their errors"
    ]


def test_a_closed_producer_has_nothing_to_say(broker, topic, caplog):
    run_and_drop(broker.bootstrap, topic, closes=True)
    assert warnings(caplog) == []


def test_the_copy_in_a_forked_child_has_nothing_to_say(broker, topic, caplog, monkeypatch):
    ours = os.getpid()
    pids = iter([ours])  # the producer is made in this process and collected in another one
    monkeypatch.setattr("ottla.client.producer.os.getpid", lambda: next(pids, ours + 1))
    run_and_drop(broker.bootstrap, topic, closes=False)
    assert warnings(caplog) == []


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_producer_that_could_not_be_made_is_collected_quietly():
    with pytest.raises(ValueError, match="linger_ms"):
        Producer("localhost:9092", linger_ms=-1)
    gc.collect()


async def test_use_before_start_says_how_to_start():
    with pytest.raises(Exception, match=r"was not started: use `async with`, or await its start\(\)"):
        await Producer("localhost:9092").send("t", b"")
