"""The hash of a group's topics, against what Kafka 4.1's own library (hash4j 0.22) computes for the same fields."""

from __future__ import annotations

from uuid import UUID

from ottla.broker.groups.metadata_hash import hash_of_topic, hash_of_topics

ORDERS = hash_of_topic(UUID(int=0x0123456789ABCDEFFEDCBA9876543210), "café-orders", 3, ("rack-a",))


def test_a_topic_hashes_as_in_kafka() -> None:
    assert ORDERS == 6094178325875796346


def test_topics_hash_as_in_kafka_in_the_order_of_their_names() -> None:
    assert hash_of_topics([("a", ORDERS), ("b", 42)]) == 727469435522600478
    assert hash_of_topics([("b", 42), ("a", ORDERS)]) == 727469435522600478


def test_no_topics_hash_to_zero() -> None:
    assert hash_of_topics([]) == 0


def test_a_hash_is_signed_as_records_have_it() -> None:
    hashes = [hash_of_topics([("a", number)]) for number in range(64)]
    assert min(hashes) < 0 < max(hashes)
    assert all(-(1 << 63) <= value < 1 << 63 for value in hashes)


def test_what_makes_a_group_look_again_changes_the_hash() -> None:
    first = hash_of_topic(UUID(int=1), "a", 2)
    assert len({first, hash_of_topic(UUID(int=2), "a", 2), hash_of_topic(UUID(int=1), "a", 3)}) == 3
    assert hash_of_topic(UUID(int=1), "a", 2, ("r",)) != first
