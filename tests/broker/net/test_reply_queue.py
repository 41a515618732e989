"""The queue of requests in flight without a socket: replies leave in the order of requests, whatever is done first."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.net.reply_queue import ReplyQueue
from ottla.broker.runtime.in_flight_request import InFlightRequest
from ottla.broker.runtime.pending import Pending
from ottla.protocol.types import Buffer


@dataclass
class Limits:
    """Of one connection."""

    max_in_flight: int
    max_pending_bytes: int


@dataclass
class Sender:
    """What the queue asks of its connection, noted down."""

    moved: int = 0
    closed: list[str] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)

    def replies_moved(self) -> None:
        self.moved += 1

    def send_alone(self, reply: list[Buffer]) -> None:
        self.sent += map(bytes, reply)

    def close(self, reason: str) -> None:
        self.closed.append(reason)


def waiting(*, parks: bool = False, requests: int = 1) -> InFlightRequest:
    pending: Pending[object] = Pending(parks=parks)
    request = InFlightRequest(pending)
    request.requests = requests
    return request


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def queue(sender: Sender) -> ReplyQueue:
    return ReplyQueue(sender, Limits(max_in_flight=3, max_pending_bytes=100))


def test_a_reply_that_nothing_stands_in_front_of_may_leave_at_once(queue: ReplyQueue, sender: Sender) -> None:
    assert queue.add([b"a", b"b"])
    assert queue.take() == [b"a", b"b"]
    assert not queue.take()
    assert sender.moved == 0


def test_a_reply_waits_behind_a_request_in_flight(queue: ReplyQueue, sender: Sender) -> None:
    first = waiting()
    assert not queue.add(first)
    assert not queue.add([b"second"])
    assert not queue.out
    assert (queue.requests, queue.size_bytes) == (2, 6)
    first.finish([b"first"])
    assert queue.take() == [b"first", b"second"]
    assert (queue.requests, queue.size_bytes, len(queue.in_flight)) == (0, 0, 0)
    assert sender.moved == 1


def test_the_answer_of_the_only_request_which_has_waited_leaves_at_once(queue: ReplyQueue, sender: Sender) -> None:
    request = waiting(parks=True)
    queue.add_parked(request)
    assert queue.blocks
    queue.parked_answered(request, [b"answer"])
    assert sender.sent == [b"answer"]
    assert not queue.take()
    assert (queue.requests, len(queue.in_flight), sender.moved) == (0, 0, 0)


def test_the_answer_of_a_request_that_has_waited_overtakes_no_other(queue: ReplyQueue, sender: Sender) -> None:
    first, second = waiting(), waiting(parks=True)
    queue.add(first)
    queue.add_parked(second)
    queue.parked_answered(second, [b"second"])
    assert (list(queue.take()), queue.size_bytes) == ([], 6)
    first.finish([b"first"])
    queue.add_parked(third := waiting(parks=True))
    queue.parked_answered(third, [b"third"])
    assert queue.take() == [b"first", b"second", b"third"]
    assert (queue.requests, queue.size_bytes, sender.sent) == (0, 0, [])


@given(st.data())
def test_replies_leave_in_the_order_of_requests_and_the_counts_add_up(data: st.DataObject) -> None:
    sender = Sender()
    queue = ReplyQueue(sender, Limits(max_in_flight=1 << 20, max_pending_bytes=1 << 20))
    open_requests: dict[int, InFlightRequest] = {}
    given_up = 0
    left: list[bytes] = []
    number = 0
    for _ in range(data.draw(st.integers(1, 30))):
        step = data.draw(st.sampled_from(["at once", "waits", "finishes", "sends"]))
        if step == "at once":
            queue.add([struct.pack(">i", number)])
            number += 1
        elif step == "waits":
            open_requests[number] = request = waiting()
            queue.add(request)
            number += 1
        elif step == "finishes" and open_requests:
            which = data.draw(st.sampled_from(sorted(open_requests)))
            has_reply = data.draw(st.booleans())  # Produce with acks=0 has none
            given_up += not has_reply
            open_requests.pop(which).finish([struct.pack(">i", which)] if has_reply else None)
        else:
            left += [bytes(piece) for piece in queue.take()]
        waiting_bytes = sum(request.size_bytes for request in queue.in_flight)
        assert queue.size_bytes == waiting_bytes
        assert queue.requests == len(queue.in_flight)
    for which in sorted(open_requests):
        open_requests[which].finish([struct.pack(">i", which)])
    left += [bytes(piece) for piece in queue.take()]
    assert left == sorted(left)
    assert len(left) == number - given_up
    assert (queue.requests, queue.size_bytes) == (0, 0)


def test_nothing_starts_behind_a_request_that_parks(queue: ReplyQueue) -> None:
    queue.add(waiting())
    assert not queue.blocks
    queue.add(waiting(parks=True))
    assert queue.blocks
    assert not queue.is_full


def test_requests_that_share_an_entry_count_each(queue: ReplyQueue) -> None:
    queue.add(waiting(requests=2))
    assert not queue.is_full
    queue.add(waiting())
    assert queue.is_full
    assert queue.blocks


def test_the_bytes_of_waiting_replies_fill_it(queue: ReplyQueue) -> None:
    first, second = waiting(), waiting()
    queue.add(first)
    queue.add(second)
    second.finish([b"x" * 100])
    assert queue.is_full
    first.finish([b""])
    assert not queue.is_full


def test_an_answer_that_says_so_ends_the_connection_before_later_replies(queue: ReplyQueue, sender: Sender) -> None:
    first, second = waiting(), waiting()
    queue.add(first)
    queue.add(second)
    second.finish([b"second"])
    first.finish(None, close_reason="no answer could be made")
    assert sender.closed == ["no answer could be made"]
    assert not queue.out


def test_a_stop_cuts_long_polls_short_and_leaves_the_others(queue: ReplyQueue) -> None:
    other, poll = waiting(), waiting(parks=True)
    cancelled: list[str] = []
    assert poll.pending is not None
    poll.pending.on_cancel(lambda: cancelled.append("poll"))
    queue.add(other)
    queue.add(poll)
    queue.cut_short()
    assert list(queue.in_flight) == [other]
    assert queue.requests == 1
    assert poll.owner is None
    assert cancelled == ["poll"]


def test_at_the_end_nobody_is_called_any_more(queue: ReplyQueue, sender: Sender) -> None:
    request = waiting()
    queue.add([b"unsent"])
    queue.add(request)
    queue.end()
    request.finish([b"too late"])
    assert not queue.out
    assert sender.moved == 0
