"""While a broker cannot be reached, its log line appears once, however often the client tries."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest

from ottla.client import Admin, KafkaError, Producer
from ottla.client.outages import REPEAT_S, Outages

QUICK = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 20}


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_each_failure_is_logged_once_while_a_broker_is_away(own_broker, topic, caplog):
    caplog.set_level(logging.DEBUG, "ottla.client")
    async with Producer(own_broker.bootstrap, **QUICK) as producer:
        await producer.send_and_wait(topic, b"before")
        own_broker.kill()
        delivery = await producer.send(topic, b"after")
        attempts = 0
        while attempts < 20:
            await asyncio.sleep(0.02)
            attempts = sum("broker 1: " in record.getMessage() for record in caplog.records)
        assert "broker 1: cannot connect to" in " ".join(lines(caplog))
        assert max(Counter(lines(caplog)).values()) == 1
        await asyncio.to_thread(own_broker.start)
        await delivery


async def test_during_the_pause_after_a_failure_the_error_gives_its_reason(own_broker):
    pauses = {"reconnect_backoff_ms": 60_000, "reconnect_backoff_max_ms": 60_000}
    async with Admin(own_broker.bootstrap, retries=0, **pauses) as admin:
        own_broker.kill()
        messages = []
        for _ in range(4):
            with pytest.raises(KafkaError) as caught:
                await admin.list_topics()
            messages.append(caught.value.message)
        assert "Connection refused" in messages[-1]
        assert messages[-1] == messages[-2]


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)

    def time(self) -> float:
        return self.now


def test_a_warning_is_repeated_after_30_s_for_another_reason_and_after_a_success(monkeypatch, caplog):
    clock, outages, logger = Clock(monkeypatch), Outages(), logging.getLogger("ottla.client.test")
    outages.failed(logger, "broker 1", "refused")
    outages.failed(logger, "broker 1", "refused")
    outages.failed(logger, "broker 2", "refused")
    outages.failed(logger, "broker 1", "no answer")
    assert lines(caplog) == ["broker 1: refused", "broker 2: refused", "broker 1: no answer"]
    caplog.clear()
    clock.now += REPEAT_S - 1
    outages.failed(logger, "broker 1", "no answer")
    assert lines(caplog) == []
    clock.now += 1
    outages.failed(logger, "broker 1", "no answer")
    outages.over("broker 1")
    outages.failed(logger, "broker 1", "no answer")
    outages.failed(logger, "broker 1", "no answer")
    assert lines(caplog) == ["broker 1: no answer", "broker 1: no answer"]
