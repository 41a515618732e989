"""Every version that kio knows: the same bytes from both, and each reads what the other wrote."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from kit.golden import CONSUMER_PROTOCOL
from kit.kio_messages import kio_bytes, kio_class, kio_knows, kio_message, narrow_to_kio, to_kio
from kit.wire_values import messages, with_records

from ottla.protocol.api import REGISTRY
from ottla.protocol.encoder_source import EncoderSource
from ottla.protocol.message import Message, decode_prefix, encode
from ottla.protocol.plan import plan_message
from ottla.protocol.stored.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

CONTROL = (LeaderChangeMessage, SnapshotHeaderRecord, SnapshotFooterRecord, KRaftVersionRecord, VotersRecord)
DECLARED = [message for api in REGISTRY.values() for message in (api.request, api.response)]
CASES = [
    pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
    for cls in (*DECLARED, *CONTROL, *CONSUMER_PROTOCOL)
    for version in cls.message_versions.versions()
    if kio_knows(cls, version)
]


def encoder_of_single_elements(cls: type[Message], version: int) -> Callable[[Message], bytes]:
    """What encodes a message as a long response, with the shortest steps that there can be."""
    generated = EncoderSource(plan_message(cls, version), elements_per_step=1)
    exec(generated.source, generated.namespace)

    def encode_in_steps(message: Message) -> bytes:
        steps = generated.namespace["encode"](message)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return b"".join(end.value)

    return encode_in_steps


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_kio_writes_the_same_bytes_and_reads_ours(cls: type[Message], version: int) -> None:
    theirs_class = kio_class(cls, version)
    in_steps = encoder_of_single_elements(cls, version)

    @settings(max_examples=10, phases=[Phase.generate])
    @given(ours=messages(cls, version, with_records(cls, narrow_to_kio)))
    def check(ours: Message) -> None:
        theirs = to_kio(ours, theirs_class)
        encoded = encode(ours, version)
        assert in_steps(ours) == encoded
        assert encoded == kio_bytes(theirs)
        assert decode_prefix(cls, encoded, version, 0) == (ours, len(encoded))
        assert kio_message(theirs_class, encoded) == (theirs, len(encoded))

    check()


def test_kio_is_an_oracle_for_every_version_that_it_should_know() -> None:
    assert len(CASES) > 190
