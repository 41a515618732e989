"""What a start logs of features: one line where `transaction.version` can be raised, none where it cannot."""

from __future__ import annotations

import pytest
from kit.nodes import start_node

from ottla.broker.start_summary import lower_transaction_version
from ottla.protocol.stored.metadata import FeatureLevelRecord


@pytest.mark.parametrize("level", [0, 1])
def test_a_lower_transaction_version_is_one_line_that_says_how_it_is_raised(level: int) -> None:
    node, _, _ = start_node()
    node.services.catalog.image.replay(FeatureLevelRecord(name="transaction.version", feature_level=level))
    line = lower_transaction_version(node.services)
    assert line.startswith(f"transaction.version is {level}, ")
    assert "`ottla features upgrade transaction.version 2 -b HOST:PORT`" in line
    assert "\n" not in line


def test_a_new_directory_has_no_such_line() -> None:
    node, _, _ = start_node()
    assert lower_transaction_version(node.services) == ""


def test_a_profile_without_the_feature_has_no_such_line() -> None:
    node, _, _ = start_node(ottla_profile="kafka-3.9")
    node.services.catalog.image.replay(FeatureLevelRecord(name="transaction.version", feature_level=0))
    assert lower_transaction_version(node.services) == ""
