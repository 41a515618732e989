"""Versions that Kafka 4 dropped and Ottla serves: the same bytes as the classes of kafka-python's second version."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from kit.golden import DROPPED_BY_KAFKA, SAME_AS_THE_NEXT
from kit.old_kafka_python_messages import old_kafka_python_class, to_old_kafka_python
from kit.wire_values import messages

from ottla.protocol.message import Message, decode_prefix, encode

VOUCHED_FOR = [dropped for dropped in DROPPED_BY_KAFKA if dropped not in SAME_AS_THE_NEXT]


@pytest.mark.parametrize(("cls", "version"), VOUCHED_FOR)
def test_kafka_python_wrote_the_same_bytes_when_it_knew_the_version(cls: type[Message], version: int) -> None:
    @settings(max_examples=15, phases=[Phase.generate])
    @given(ours=messages(cls, version))
    def check(ours: Message) -> None:
        encoded = encode(ours, version)
        assert encoded == to_old_kafka_python(ours, version).encode()
        assert decode_prefix(cls, encoded, version, 0) == (ours, len(encoded))
        assert old_kafka_python_class(cls, version).decode(encoded).encode() == encoded

    check()


@pytest.mark.parametrize(("cls", "version"), SAME_AS_THE_NEXT)
def test_a_version_that_looks_as_the_next_has_its_bytes(cls: type[Message], version: int) -> None:
    @settings(max_examples=15, phases=[Phase.generate])
    @given(ours=messages(cls, version))
    def check(ours: Message) -> None:
        encoded = encode(ours, version)
        assert encoded == encode(ours, version + 1)
        assert decode_prefix(cls, encoded, version, 0) == (ours, len(encoded))

    check()
