"""What is generated can be read, is generated once, and is found by tracebacks."""

from __future__ import annotations

import traceback

import pytest

from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.compiler import decoder_text, encoder_text
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.message import Message, decode, encode


def test_a_version_is_compiled_on_first_use_and_kept() -> None:
    class Small(Message, versions="0-1", flexible="none"):
        number: int

    Small.__declaration__[0]["number"] = "Int32"
    assert Small.encoders == {}
    assert encode(Small(number=1), 1) == b"\0\0\0\1"
    assert list(Small.encoders) == [1]
    encoder = Small.encoders[1]
    assert encode(Small(number=2), 1) == b"\0\0\0\2"
    assert Small.encoders[1] is encoder
    assert Small.decoders == {}


def test_tracebacks_show_generated_source() -> None:
    with pytest.raises(MalformedMessage) as caught:
        decode(MetadataRequest, b"\0\0\0\5", 1)
    shown = "".join(traceback.format_exception(caught.value))
    assert '"<ottla: decode MetadataRequest v1>"' in shown
    assert "raise bad_count" in shown


def test_tracebacks_of_encoders_and_constructors_show_generated_source() -> None:
    with pytest.raises(ValueError, match="key is 3") as caught:
        encode(FindCoordinatorRequest(key=3), 0)  # type: ignore[arg-type]  # what is tested
    assert ".key.encode()" in "".join(traceback.format_exception(caught.value))


def test_neighbouring_fields_are_read_and_written_at_once() -> None:
    assert "unpack_0(data, p)" in decoder_text(MetadataRequest, 8)
    assert (
        "(o.allow_auto_topic_creation, o.include_cluster_authorized_operations, o.include_topic_authorized_operations)"
    ) in encoder_text(MetadataRequest, 8)
