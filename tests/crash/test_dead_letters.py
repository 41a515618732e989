"""`kill -9` of the real process right after rejections: each rejected record has a dead letter after the restart.

No member has to come for that, and no rejected record is delivered again. Raw frames, as in `test_commits.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.broker import BrokerProcess
from kit.dead_letter_wire import (
    COPY,
    GROUP,
    TOPIC_NAME,
    alter_keys,
    create_dead_letter_topic,
    dead_letters,
    serve_dead_letters,
)
from kit.share_wire import ShareWireMember, await_coordinator, create_topic, new_group, offsets, produce_batches
from kit.wire import PATIENCE_S, Wire

from ottla.protocol.api.share_fetch import AcknowledgeType
from ottla.protocol.errors import ErrorCode

LETTERS = "dlq.letters"
ROUNDS, RECORDS = 4, 50
REJECT = int(AcknowledgeType.REJECT)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as running:
        yield running


@pytest.mark.parametrize("copies", ["false", "true"])
def test_no_dead_letter_is_lost_by_kill_minus_nine(broker: BrokerProcess, copies: str) -> None:
    with Wire(broker.port) as wire:
        serve_dead_letters(wire)
        topic, topic_id = create_topic(wire)
        group = new_group(wire)
        assert alter_keys(wire, GROUP, group, {TOPIC_NAME: LETTERS, COPY: copies}) == (ErrorCode.NONE, None)
        create_dead_letter_topic(wire, LETTERS)
    for round_ in range(ROUNDS):
        first = round_ * RECORDS
        with Wire(broker.port) as wire:
            await_coordinator(wire, group)
            produce_batches(wire, topic, RECORDS)
        member = ShareWireMember(broker.port, group, [(topic_id, 0)])
        member.join(topic)
        assert member.first_records() == [(first, first + RECORDS - 1, 1)]
        assert member.result((topic_id, 0), (first, first + RECORDS - 1, [REJECT])) == ErrorCode.NONE
        broker.kill()
        broker.start()
        with Wire(broker.port) as wire:
            give_up = time.monotonic() + PATIENCE_S
            while True:
                letters = dead_letters(wire, LETTERS, first + RECORDS)
                missing = set(range(first + RECORDS)) - {letter.offset for letter in letters}
                if not missing:
                    break
                assert time.monotonic() < give_up, missing
                time.sleep(0.05)
            assert all((letter.value is not None) is (copies == "true") for letter in letters)
            await_coordinator(wire, group)
            while offsets(wire, group, {topic: [0]}).topics[0].partitions[0].start_offset != first + RECORDS:
                assert time.monotonic() < give_up
                time.sleep(0.05)
