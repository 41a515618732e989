"""The records of a batch are checked all together, with the result of looking at each by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.logs import topic_config

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import Compression, encode_batch, parse_header
from ottla.protocol.records.record import Record
from ottla.storage.log.append import BatchRules, Refused
from ottla.storage.log.rewrite import rewrite

NOW_MS = 1_000_000
RANGE_MS = 10_000
TIMES_MS = [-1, 0, NOW_MS - RANGE_MS - 1, NOW_MS - RANGE_MS, NOW_MS, NOW_MS + RANGE_MS, NOW_MS + RANGE_MS + 1]


def rules_of(**settings: Any) -> BatchRules:
    return BatchRules(
        topic_config(
            {"message.timestamp.before.max.ms": str(RANGE_MS), "message.timestamp.after.max.ms": str(RANGE_MS)}
            | {key.replace("_", "."): value for key, value in settings.items()}
        )
    )


def wrong_records(records: list[Record], *, is_compacted: bool) -> list[int]:
    """The numbers of those that may not be stored."""
    return [
        record.offset
        for record in records
        if (is_compacted and record.key is None)
        or (record.timestamp != -1 and not -RANGE_MS <= record.timestamp - NOW_MS <= RANGE_MS)
    ]


@given(
    st.lists(st.tuples(st.sampled_from(TIMES_MS), st.sampled_from([None, b"", b"k"])), min_size=1, max_size=6),
    st.booleans(),
)
def test_the_records_that_are_refused_are_those_that_one_look_at_each_would_refuse(
    drawn: list[tuple[int, bytes | None]], is_compacted: bool
) -> None:
    records = [Record(number, stamp_ms, key, b"v") for number, (stamp_ms, key) in enumerate(drawn)]
    rules = rules_of(**({"cleanup_policy": "compact"} if is_compacted else {"ottla_validate_records": "true"}))
    batch = memoryview(bytearray(encode_batch(records)))
    wrong = wrong_records(records, is_compacted=is_compacted)
    if wrong:
        with pytest.raises(Refused) as caught:
            rewrite(batch, parse_header(batch), rules, NOW_MS)
        assert [error.batch_index for error in caught.value.record_errors] == wrong
    else:
        _, header = rewrite(batch, parse_header(batch), rules, NOW_MS)
        assert header.max_timestamp == max(record.timestamp for record in records)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("settings", [{"cleanup_policy": "compact"}, {"ottla_validate_records": "true"}])
def test_records_that_may_be_stored_are_checked_without_decoding_them(
    compression: Compression, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [Record(number, NOW_MS - number, b"k", None, (("h", b""),)) for number in range(100)]
    sent = encode_batch(records, compression=compression)
    batch = memoryview(bytearray(sent))
    monkeypatch.setattr("ottla.storage.log.rewrite.decode_records", None)  # a call fails
    rewrite(batch, parse_header(batch), rules_of(**settings), NOW_MS)
    assert batch == sent


def test_offsets_with_a_gap_are_refused_by_the_first_that_is_wrong() -> None:
    batch = memoryview(bytearray(encode_batch([Record(0, NOW_MS, b"k", b""), Record(2, NOW_MS, b"k", b"")])))
    with pytest.raises(Refused, match="record 1 of the batch has the offset delta 2") as caught:
        rewrite(batch, parse_header(batch), rules_of(cleanup_policy="compact"), NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_what_the_broker_itself_writes_to_a_compacted_topic_is_not_decoded() -> None:
    config = topic_config({"cleanup.policy": "compact"})
    assert BatchRules(config, is_of_clients=False).is_plain
    assert not BatchRules(config).is_plain
