"""What is in a broker, as the report of a failed test shows it: soon, and whatever is in it."""

from __future__ import annotations

import pytest

from ottla.testing import EmbeddedBroker
from ottla.testing.report import MOST_READ, describe


def test_of_a_long_topic_only_the_end_is_read() -> None:
    with EmbeddedBroker() as broker:
        broker.send("orders", *[b"%d" % number for number in range(MOST_READ + 200)])
        records, before = broker.last_records("orders", MOST_READ, 3)
        assert ([record.value for record in records], before) == ([b"1197", b"1198", b"1199"], 1197)
        assert broker.last_records("orders", MOST_READ + 200, 3) == (broker.records("orders"), 0)
        _, topic, more, *shown = describe(broker).splitlines()
    assert (topic, more) == ("topic orders: 1,200 offsets", "  ...")
    assert shown == [f"  partition 0, offset {at}: null = '{at}'" for at in range(1195, 1200)]


def test_no_error_leaves_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception here would end the whole run of pytest as an internal error."""

    def fail(*_: object) -> None:
        raise ValueError("a codec that is not installed")

    with EmbeddedBroker() as broker:
        broker.send("orders", b"tea")
        monkeypatch.setattr(broker, "last_records", fail)
        monkeypatch.setattr(broker, "records", fail)
        assert describe(broker) == "it cannot be described: ValueError: a codec that is not installed"
