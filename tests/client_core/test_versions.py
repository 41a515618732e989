"""Which version of an API is used."""

from __future__ import annotations

import pytest

from ottla.client_core.versions import NoCommonVersion, newest_common
from ottla.protocol.api import REGISTRY, ApiKey

METADATA = REGISTRY[ApiKey.METADATA]


@pytest.mark.parametrize(
    ("theirs", "at_most", "chosen"),
    [
        ((0, 99), 99, METADATA.max_version),
        ((0, 5), 99, 5),
        ((2, 5), 4, 4),
        ((5, 5), 5, 5),
    ],
)
def test_the_newest_that_both_speak_is_chosen(theirs, at_most, chosen):
    assert newest_common({ApiKey.METADATA: theirs}, ApiKey.METADATA, at_most) == chosen


@pytest.mark.parametrize(
    ("theirs", "at_most", "in_words"),
    [((90, 99), 99, "90-99"), ((5, 9), 4, "5-9"), (None, 99, "none"), ((3, 2), 99, "none")],
)
def test_without_a_common_version_both_ranges_are_named(theirs, at_most, in_words):
    known = {} if theirs is None else {ApiKey.METADATA: theirs}
    with pytest.raises(NoCommonVersion, match=f"Metadata: the broker speaks versions {in_words}, this client") as none:
        newest_common(known, ApiKey.METADATA, at_most)
    assert none.value.newest == min(at_most, METADATA.max_version)


def test_versions_whose_records_no_client_here_writes_are_not_used():
    assert newest_common({ApiKey.PRODUCE: (0, 3)}, ApiKey.PRODUCE) == 3
    with pytest.raises(NoCommonVersion, match="0-2, this client 3-"):
        newest_common({ApiKey.PRODUCE: (0, 2)}, ApiKey.PRODUCE)
    with pytest.raises(NoCommonVersion):
        newest_common({ApiKey.METADATA: (0, 3)}, ApiKey.METADATA, oldest_used={ApiKey.METADATA: 4})
