"""Every version that kafka-python 3 knows: the same bytes from both, and each reads what the other wrote."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from kit.golden import REQUESTS_AND_RESPONSES
from kit.kafka_python_messages import kafka_python_class, narrow_to_kafka_python, reencoded, to_kafka_python
from kit.wire_values import messages

from ottla.protocol.message import Message, decode_prefix, encode

CASES = [
    pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
    for cls in REQUESTS_AND_RESPONSES
    for version in cls.message_versions.versions()
    if kafka_python_class(cls, version) is not None
]

UNKNOWN_TO_KAFKA_PYTHON = {
    f"{api}{kind}"
    for api in (
        "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe",
        "CreateDelegationToken",
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "DescribeDelegationToken",
        "ShareGroupHeartbeat",
        "ShareGroupDescribe",
        "ShareFetch",
        "ShareAcknowledge",
        "DescribeShareGroupOffsets",
        "AlterShareGroupOffsets",
        "DeleteShareGroupOffsets",
        "StreamsGroupHeartbeat",
        "StreamsGroupDescribe",
        "StreamsGroupTopologyDescriptionUpdate",
        "UnregisterBroker",
    )
    for kind in ("Request", "Response")
}


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_kafka_python_writes_the_same_bytes_and_reads_ours(cls: type[Message], version: int) -> None:
    @settings(max_examples=8, phases=[Phase.generate])
    @given(ours=messages(cls, version, narrow_to_kafka_python(cls)))
    def check(ours: Message) -> None:
        encoded = encode(ours, version)
        theirs = to_kafka_python(ours, version)
        assert encoded == theirs.encode(version)
        assert decode_prefix(cls, encoded, version, 0) == (ours, len(encoded))
        assert reencoded(cls, encoded, version) == encoded

    check()


def test_kafka_python_is_an_oracle_for_every_declared_api_that_it_knows() -> None:
    judged = {case.values[0] for case in CASES}
    assert {cls.__name__ for cls in REQUESTS_AND_RESPONSES if cls not in judged} == UNKNOWN_TO_KAFKA_PYTHON
