"""A quota that nobody reaches changes no answer, whenever it comes and goes: beside a node that has none."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from kit.clock import ManualClock
from kit.examples import examples
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import start_node

from ottla.broker.node import Node

PLENTY = {
    "producer_byte_rate": 1e15,
    "consumer_byte_rate": 1e15,
    "request_percentage": 1e15,
    "controller_mutation_rate": 1e15,
}


class Side(NamedTuple):
    """One of the nodes, with a client."""

    node: Node
    clock: ManualClock
    client: Exchange


def make_side() -> Side:
    node, _, clock = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t")
    return Side(node, clock, Exchange(node))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("quota"), st.booleans()),
        st.tuples(st.just("produce"), st.sampled_from([0, 700, 3_000])),
        st.tuples(st.just("fetch"), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.integers(0, 3)),
        st.tuples(st.just("pass"), st.integers(1, 2_000)),
    ),
    min_size=10,
    max_size=60,
)


@settings(max_examples=examples(40), deadline=None)
@given(steps)
def test_a_quota_that_nobody_reaches_changes_no_answer(steps: list[tuple[str, int]]) -> None:
    sides = make_side(), make_side()
    for kind, value in [*steps, ("pass", 60_000)]:
        for side in sides:
            if kind == "quota":
                if side is sides[0]:
                    side.node.services.quotas.change({(("client-id", "test"),): PLENTY if value else {}})
            elif kind == "produce":
                side.client.send(produce_request("t", batch(value=b"x" * value)), 9)
            elif kind == "fetch":
                side.client.send(fetch_request("t", value), 12)
            elif kind == "wait":
                side.client.send(fetch_request("t", value, max_wait_ms=1_000, min_bytes=2_000), 12)
            else:
                side.clock.advance(value)
                side.node.run_due()
            side.node.settle()
        assert sides[0].client.replies() == sides[1].client.replies()
    assert not sides[0].client.connection.pause_reasons
