"""Dead letters of share groups (KIP-1191) by raw frames, each test to be judged by Apache Kafka too:

    scripts/interop/apache-kafka --version 4.4.0 -- .venv/bin/pytest tests/integration/test_dead_letters_wire.py

Where Ottla differs on purpose there is no test here, but a row in docs/deviations.md.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from kit.broker import BrokerProcess
from kit.dead_letter_wire import (
    AUTO_CREATE,
    BROKER,
    COPY,
    GROUP,
    IS_DEAD_LETTER_TOPIC,
    PREFIX,
    TOPIC,
    TOPIC_NAME,
    alter_keys,
    create_dead_letter_topic,
    dead_letters,
    partition_count,
    produce,
    serve_dead_letters,
)
from kit.share_wire import Place, ShareWireMember, create_topic, new_group, offsets, produce_batches
from kit.wire import PATIENCE_S, Wire

from ottla.protocol.api.share_fetch import AcknowledgeType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.compression import Compression

GAP, ACCEPT, RELEASE, REJECT, RENEW = (int(kind) for kind in AcknowledgeType)
NONE = ErrorCode.NONE
REJECTED, TOO_OFTEN = "Offset rejected by client.", "Offset delivery count exceeded the threshold."


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        serve_dead_letters(connection)
        yield connection


class Scene:
    """A topic of records, and a group with dead letters whose only member has joined."""

    def __init__(self, broker: BrokerProcess, wire: Wire) -> None:
        self.wire = wire
        self._port = broker.port
        self.members: list[ShareWireMember] = []

    def begin(
        self,
        records: int,
        *,
        copies: bool = False,
        partitions: int = 1,
        topic_of_letters: str | None = None,
        **settings: str,
    ) -> ShareWireMember:
        """A topic with a batch of so many records in each partition."""
        self.topic, self.topic_id = create_topic(self.wire, partitions)
        self.place: Place = self.topic_id, 0
        for index in range(partitions):
            if records:
                produce_batches(self.wire, self.topic, records, partition=index)
        self.group = new_group(self.wire, **settings)
        self.letters = f"dlq.{uuid.uuid4().hex}" if topic_of_letters is None else topic_of_letters
        changes: dict[str, str | None] = {TOPIC_NAME: self.letters, COPY: "true" if copies else "false"}
        assert alter_keys(self.wire, GROUP, self.group, changes) == (NONE, None)
        return self.member(partitions)

    def member(self, partitions: int = 1) -> ShareWireMember:
        """One more member."""
        self.members.append(ShareWireMember(self._port, self.group, [(self.topic_id, n) for n in range(partitions)]))
        self.members[-1].join(self.topic)
        return self.members[-1]


@pytest.fixture
def scene(broker: BrokerProcess, wire: Wire) -> Iterator[Scene]:
    made = Scene(broker, wire)
    yield made
    for member in made.members:
        member.close()


# --- which records ----------------------------------------------------------------------------------------------------


def test_a_rejected_record_has_a_dead_letter_that_says_which_it_was(scene: Scene) -> None:
    one = scene.begin(5)
    create_dead_letter_topic(scene.wire, scene.letters)
    one.first_records()
    assert one.result(scene.place, (0, 4, [ACCEPT, REJECT, GAP, RELEASE, REJECT])) == NONE
    letters = dead_letters(scene.wire, scene.letters, 2)
    assert [letter.offset for letter in letters] == [1, 4]
    assert letters[0].headers == {
        "topic": scene.topic,
        "partition": "0",
        "offset": "1",
        "group": scene.group,
        "delivery.count": "1",
        "message": REJECTED,
    }
    assert (letters[0].key, letters[0].value) == (None, None)


def test_the_headers_come_in_an_order(scene: Scene) -> None:
    one = scene.begin(1)
    create_dead_letter_topic(scene.wire, scene.letters)
    one.first_records()
    assert one.result(scene.place, (0, 0, [REJECT])) == NONE
    (letter,) = dead_letters(scene.wire, scene.letters, 1)
    assert list(letter.headers) == ["topic", "partition", "offset", "group", "delivery.count", "message"]


def test_a_record_that_was_released_after_its_last_delivery_has_a_dead_letter(scene: Scene) -> None:
    one = scene.begin(3, delivery_count_limit="2")
    create_dead_letter_topic(scene.wire, scene.letters)
    one.first_records()
    assert one.result(scene.place, (0, 2, [RELEASE])) == NONE
    while one.records():
        pass
    assert one.result(scene.place, (0, 2, [RELEASE, REJECT, ACCEPT])) == NONE
    letters = dead_letters(scene.wire, scene.letters, 2)
    facts = [(letter.offset, letter.headers["delivery.count"], letter.headers["message"]) for letter in letters]
    assert sorted(facts) == [(0, "2", TOO_OFTEN), (1, "2", REJECTED)]


@pytest.mark.parametrize("how", ["session", "connection"])
def test_a_record_that_a_member_left_behind_at_its_last_delivery_has_a_dead_letter(scene: Scene, how: str) -> None:
    one = scene.begin(2, delivery_count_limit="2")
    create_dead_letter_topic(scene.wire, scene.letters)
    one.first_records()
    assert one.result(scene.place, (0, 1, [RELEASE])) == NONE
    while one.records():
        pass
    if how == "session":
        one.fetch(epoch=-1)
    else:
        one.close()
    letters = dead_letters(scene.wire, scene.letters, 2)
    assert sorted((letter.offset, letter.headers["message"]) for letter in letters) == [(0, TOO_OFTEN), (1, TOO_OFTEN)]


def test_accepted_records_and_gaps_have_none(scene: Scene) -> None:
    one = scene.begin(4)
    create_dead_letter_topic(scene.wire, scene.letters)
    one.first_records()
    assert one.result(scene.place, (0, 3, [ACCEPT, GAP, ACCEPT, REJECT])) == NONE
    assert [letter.offset for letter in dead_letters(scene.wire, scene.letters, 1)] == [3]


def test_the_group_goes_on_after_a_dead_letter(scene: Scene) -> None:
    one = scene.begin(3)
    create_dead_letter_topic(scene.wire, scene.letters)
    one.first_records()
    assert one.result(scene.place, (0, 1, [REJECT])) == NONE
    again = one.result(scene.place, (0, 0, [ACCEPT]))
    assert again in (ErrorCode.INVALID_RECORD_STATE, NONE), "NONE if the letter is there: it is too late"
    assert one.result(scene.place, (2, 2, [ACCEPT])) == NONE
    dead_letters(scene.wire, scene.letters, 2)
    produce_batches(scene.wire, scene.topic, 2)
    assert one.first_records() == [(3, 4, 1)]
    assert one.result(scene.place, (3, 4, [ACCEPT])) == NONE
    (state,) = offsets(scene.wire, scene.group, {scene.topic: [0]}).topics[0].partitions
    assert state.lag == 0


# --- what is in them --------------------------------------------------------------------------------------------------


def test_key_and_value_are_copied_if_the_group_says_so(scene: Scene) -> None:
    one = scene.begin(0, copies=True)
    create_dead_letter_topic(scene.wire, scene.letters)
    records = [(b"k", b"v", [("h", b"1")]), (None, b"w", []), (b"k", None, []), (None, None, []), (b"", b"", [])]
    produce(scene.wire, scene.topic, *records)
    produce(scene.wire, scene.topic, *records, compression=Compression.GZIP)
    found = one.first_records()
    while found[-1][1] < 9:
        found += one.records()
    assert one.result(scene.place, (0, 9, [REJECT])) == NONE
    letters = sorted(dead_letters(scene.wire, scene.letters, 10), key=lambda letter: letter.offset)
    assert [(letter.key, letter.value) for letter in letters] == [(key, value) for key, value, _ in records] * 2


def test_a_record_that_is_too_large_for_the_topic_is_not_copied(scene: Scene) -> None:
    one = scene.begin(0, copies=True)
    create_dead_letter_topic(scene.wire, scene.letters, max_message_bytes="2000")
    for size in (100, 5000, 100):
        produce(scene.wire, scene.topic, (b"k", b"v" * size, []))
    found = one.first_records()
    while found[-1][1] < 2:
        found += one.records()
    assert one.result(scene.place, (0, 2, [REJECT])) == NONE
    letters = sorted(dead_letters(scene.wire, scene.letters, 3), key=lambda letter: letter.offset)
    assert [len(letter.value or b"") for letter in letters] == [100, 0, 100]
    assert letters[1].headers["message"] == REJECTED


def test_many_dead_letters_come_in_batches_that_the_topic_takes(scene: Scene) -> None:
    one = scene.begin(0, copies=True)
    create_dead_letter_topic(scene.wire, scene.letters, max_message_bytes="2000")
    produce(scene.wire, scene.topic, *[(b"k%d" % n, b"v" * 200, []) for n in range(30)])
    assert one.first_records() == [(0, 29, 1)]
    assert one.result(scene.place, (0, 29, [REJECT])) == NONE
    letters = dead_letters(scene.wire, scene.letters, 30)
    assert [letter.key for letter in letters] == [b"k%d" % n for n in range(30)]


def test_the_partition_is_that_of_the_record_as_far_as_there_are_such(scene: Scene) -> None:
    one = scene.begin(1, partitions=3)
    create_dead_letter_topic(scene.wire, scene.letters, partitions=2)
    give_up = time.monotonic() + PATIENCE_S
    missing = {0, 1, 2}
    while missing:
        assert time.monotonic() < give_up
        answer = one.fetch()
        missing -= {part.partition_index for topic in answer.responses for part in topic.partitions}
    for index in range(3):
        assert one.result((scene.topic_id, index), (0, 0, [REJECT])) == NONE
    letters = dead_letters(scene.wire, scene.letters, 3, partitions=2)
    assert sorted((letter.partition, letter.headers["partition"]) for letter in letters) == [
        (0, "0"),
        (0, "2"),
        (1, "1"),
    ]


# --- topics -----------------------------------------------------------------------------------------------------------


def test_the_topic_is_created_if_the_broker_may(scene: Scene, wire: Wire) -> None:
    assert alter_keys(wire, BROKER, "", {AUTO_CREATE: "true"}) == (NONE, None)
    try:
        one = scene.begin(1)
        one.first_records()
        assert one.result(scene.place, (0, 0, [REJECT])) == NONE
        assert partition_count(wire, scene.letters, 1) == 1
        assert len(dead_letters(wire, scene.letters, 1)) == 1
    finally:
        assert alter_keys(wire, BROKER, "", {AUTO_CREATE: None}) == (NONE, None)


@pytest.mark.parametrize("why", ["no topic", "another topic", "prefix"])
def test_without_a_topic_that_may_be_used_records_are_archived_all_the_same(scene: Scene, why: str) -> None:
    name = f"{'other' if why == 'prefix' else 'dlq'}.{uuid.uuid4().hex}"
    one = scene.begin(2, topic_of_letters=name)
    if why != "no topic":
        create_dead_letter_topic(
            scene.wire, name, **({IS_DEAD_LETTER_TOPIC: "unset"} if why == "another topic" else {})
        )
    one.first_records()
    assert one.result(scene.place, (0, 1, [REJECT])) == NONE
    produce_batches(scene.wire, scene.topic, 1)
    assert one.first_records() == [(2, 2, 1)]
    assert one.result(scene.place, (2, 2, [ACCEPT])) == NONE
    give_up = time.monotonic() + PATIENCE_S
    while offsets(scene.wire, scene.group, {scene.topic: [0]}).topics[0].partitions[0].lag:
        assert time.monotonic() < give_up
        time.sleep(0.1)
    assert dead_letters(scene.wire, name, 0) == []
    assert partition_count(scene.wire, name) == (0 if why == "no topic" else 1)


def test_the_broker_may_allow_other_names(scene: Scene, wire: Wire) -> None:
    assert alter_keys(wire, BROKER, "", {PREFIX: ""}) == (NONE, None)
    try:
        one = scene.begin(1, topic_of_letters=f"other.{uuid.uuid4().hex}")
        create_dead_letter_topic(wire, scene.letters)
        one.first_records()
        assert one.result(scene.place, (0, 0, [REJECT])) == NONE
        assert len(dead_letters(wire, scene.letters, 1)) == 1
    finally:
        assert alter_keys(wire, BROKER, "", {PREFIX: None}) == (NONE, None)


# --- settings ---------------------------------------------------------------------------------------------------------


WRONG = [
    (GROUP, TOPIC_NAME, "__letters", ErrorCode.INVALID_CONFIG),
    (GROUP, COPY, "maybe", ErrorCode.INVALID_CONFIG),
    (BROKER, AUTO_CREATE, "maybe", ErrorCode.INVALID_REQUEST),
]
RIGHT = [
    (GROUP, TOPIC_NAME, ""),
    (GROUP, TOPIC_NAME, "not-the-prefix"),
    (GROUP, TOPIC_NAME, "no/topic has such a name"),
    (GROUP, COPY, "TRUE"),
    (BROKER, PREFIX, "x"),
]


@pytest.mark.parametrize(("kind", "key", "value", "code"), WRONG)
def test_wrong_settings_are_refused(wire: Wire, kind: int, key: str, value: str, code: ErrorCode) -> None:
    name = "" if kind == BROKER else f"g-{uuid.uuid4().hex}"
    assert alter_keys(wire, kind, name, {key: value})[0] == code


@pytest.mark.parametrize(("kind", "key", "value"), RIGHT)
def test_other_settings_are_taken(wire: Wire, kind: int, key: str, value: str) -> None:
    name = "" if kind == BROKER else f"g-{uuid.uuid4().hex}"
    assert alter_keys(wire, kind, name, {key: value}) == (NONE, None)
    assert alter_keys(wire, kind, name, {key: None}) == (NONE, None)


def test_a_topic_becomes_one_of_dead_letters_while_it_is_used(scene: Scene, wire: Wire) -> None:
    one = scene.begin(1)
    create_dead_letter_topic(wire, scene.letters, **{IS_DEAD_LETTER_TOPIC: "unset"})
    assert alter_keys(wire, TOPIC, scene.letters, {IS_DEAD_LETTER_TOPIC: "true"}) == (NONE, None)
    one.first_records()
    assert one.result(scene.place, (0, 0, [REJECT])) == NONE
    assert len(dead_letters(wire, scene.letters, 1)) == 1
