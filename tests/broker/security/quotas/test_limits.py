"""Kafka's eight levels of quotas: the first that is set counts, and it says who shares an account."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from ottla.broker.security.quotas.limits import PRODUCE, Limits

if TYPE_CHECKING:
    from ottla.broker.security.quotas.limits import Entity

LEVELS = [
    ((("user", "u"), ("client-id", "c")), ("u", "c")),
    ((("user", "u"), ("client-id", None)), ("u", "c")),
    ((("user", "u"),), ("u", "")),
    ((("user", None), ("client-id", "c")), ("u", "c")),
    ((("user", None), ("client-id", None)), ("u", "c")),
    ((("user", None),), ("u", "")),
    ((("client-id", "c"),), ("", "c")),
    ((("client-id", None),), ("", "c")),
]


def limits_of(kind: str, entities: Mapping[Entity, Mapping[str, float]]) -> Limits:
    limits = Limits(kind)
    limits.change(entities)
    return limits


@pytest.mark.parametrize("chosen", [set(each) for size in (1, 2, 3) for each in combinations(range(8), size)])
def test_the_first_level_that_is_set_counts(chosen: set[int]) -> None:
    limits = limits_of(PRODUCE, {LEVELS[level][0]: {PRODUCE: 100.0 + level} for level in chosen})
    first = min(chosen)
    assert limits.of("u", "c") == (100.0 + first, *LEVELS[first][1])


def test_others_are_not_meant() -> None:
    limits = limits_of(
        PRODUCE,
        {
            (("user", "u"), ("client-id", "c")): {PRODUCE: 1},
            (("user", "v"),): {"consumer_byte_rate": 2},
            (("ip", "192.0.2.1"),): {PRODUCE: 3},
        },
    )
    assert limits.of("u", "d") is None
    assert limits.of("v", "c") is None
    assert limits.of("", "") is None
    assert not limits_of("request_percentage", {(("user", "u"),): {PRODUCE: 1}})


def test_a_change_leaves_the_quotas_of_other_entities() -> None:
    limits = limits_of(PRODUCE, {(("user", "u"),): {PRODUCE: 1}, (("user", "v"),): {PRODUCE: 2}})
    limits.change({(("user", "u"),): {PRODUCE: 3}})
    assert limits.of("u", "") == (3, "u", "")
    limits.change({(("user", "u"),): {"consumer_byte_rate": 4}})
    assert limits.of("u", "") is None
    assert limits.of("v", "") == (2, "v", "")
    limits.change({(("user", "v"),): {}})
    assert not limits
