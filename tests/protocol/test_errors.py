"""Error codes: Kafka's names and numbers, compared with the tables of two clients."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from ottla.protocol.errors import ErrorCode, KafkaError


def test_names_codes_and_retries_are_those_of_kafka() -> None:
    theirs = {code.name.upper(): (code.value, code.retriable) for code in KioErrorCode}
    ours = {code.name: (code.value, code.retriable) for code in ErrorCode}
    assert {name: ours[name] for name in ours.keys() & theirs.keys()} == {
        name: theirs[name] for name in ours.keys() & theirs.keys()
    }
    assert not theirs.keys() - ours.keys()
    assert sorted(ErrorCode) == list(range(-1, 137))


def test_every_code_says_what_it_means_in_words_of_its_own() -> None:
    messages = [code.message for code in ErrorCode]
    assert len(set(messages)) == len(messages)
    assert all(message.endswith(".") for message in messages)


def test_a_code_travels_as_its_number() -> None:
    assert ErrorCode.OFFSET_OUT_OF_RANGE == 1
    assert ErrorCode(-1) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_code_that_is_newer_than_the_table_is_an_unknown_error() -> None:
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_refusal_carries_its_code_and_a_message() -> None:
    assert str(KafkaError(ErrorCode.INVALID_REQUEST, "twice the same topic")) == "INVALID_REQUEST: twice the same topic"
    assert KafkaError(ErrorCode.NONE).message == "No error."
    assert KafkaError(ErrorCode.NONE, "").message == "No error."  # Kafka sends an empty text for some
