"""Large Produce requests, which are received into buffers of their own, and appended while those are warm."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.exchange import Exchange, fetch_request
from kit.produce_frames import KINDS, answers_of, frame, frames_of, make_node
from kit.transport import feed

from ottla.broker.net.buffers import LARGE_FRAME_BYTES, POOL_BYTES, READ_BYTES, ReceiveBuffers
from ottla.broker.net.held_bytes import HeldBytes
from ottla.broker.net.pipeline import LARGE_READ_BYTES
from ottla.broker.node import Node
from ottla.broker.runtime.turn import Turn

SIZE_BYTES = 140_000
"""Of a value; a batch of two is a frame that no single read into the arena brings."""


SIZES_BYTES = [SIZE_BYTES, SIZE_BYTES, SIZE_BYTES, 1, 33_000, 90_000, 300_000]


def client_of(node: Node, beside: Exchange | None = None, *, size_bytes: int = SIZE_BYTES) -> Exchange:
    """A client that has sent large frames of one length, which the short way knows now, and expects the next one."""
    client = Exchange(node, beside)
    for each in frames_of([("plain", size_bytes)] * 2):
        feed(client.connection, each)
        node.settle()
    client.transport.written.clear()
    return client


def pieces_of(data: bytes, size_bytes: int) -> list[bytes]:
    return [data[start : start + size_bytes] for start in range(0, len(data), size_bytes)]


def stored(client: Exchange) -> int:
    partition = client.node.services.catalog.topics["t"].partitions[0]
    assert partition is not None
    return partition.log.log_end_offset


def read(client: Exchange, data: bytes) -> None:
    """One read, whether the connection wants it or not: TLS gives what it has deciphered after a pause, too."""
    room = client.connection.get_buffer(-1)
    assert len(room) >= len(data)
    room[: len(data)] = data
    client.connection.buffer_updated(len(data))


def large(count: int = 1, size_bytes: int = SIZE_BYTES) -> bytes:
    return b"".join(frames_of([("plain", size_bytes)] * count))


def deliver(client: Exchange, data: bytes) -> None:
    """Let all of it arrive, in as many turns as the connection wants for it."""
    metrics = client.connections.shared.metrics
    while data:
        before = metrics.bytes_received
        feed(client.connection, data)
        data = data[metrics.bytes_received - before :]
        if data:
            client.node.settle()


@settings(max_examples=examples(80))
@given(
    st.sampled_from(["page-cache", "sync"]),
    st.lists(
        st.tuples(
            st.sampled_from(KINDS), st.sampled_from([SIZE_BYTES, SIZE_BYTES, SIZE_BYTES, 1, 33_000, 90_000, 300_000])
        ),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["", "turn", "settle"])), max_size=8),
)
def test_large_frames_in_any_pieces_are_answered_as_if_each_had_come_alone(
    acks_all: str, kinds: list[tuple[str, int]], cuts: list[tuple[float, str]]
) -> None:
    frames = frames_of(kinds)
    one_by_one = client_of(make_node(acks_all))
    for each in frames:
        deliver(one_by_one, each)
        one_by_one.node.settle()
    client = client_of(make_node(acks_all))
    stream = b"".join(frames)
    position = 0
    for cut, then in sorted(cuts):
        following = int(cut * len(stream))
        deliver(client, stream[position:following])
        position = following
        if then == "turn":
            client.end_turn()
        elif then:
            client.node.settle()
    deliver(client, stream[position:])
    client.node.settle()
    assert client.transport.written == one_by_one.transport.written
    assert client.node.services.metrics.request_counts == one_by_one.node.services.metrics.request_counts
    assert client.connections.shared.buffers.owned_bytes == 0
    assert client.connection.reader.partial_since_ms is None


def test_a_read_that_brings_nothing_makes_nobody_own_a_buffer() -> None:
    """The loop asks where the next bytes go before it knows whether there are any."""
    client = client_of(make_node())
    buffers = client.connections.shared.buffers
    room = client.connection.get_buffer(-1)
    assert len(room) > LARGE_FRAME_BYTES
    assert buffers.owned_bytes == 0
    other = client_of(client.node, client)
    other.connection.get_buffer(-1)
    feed(client.connection, large())
    feed(other.connection, large(3))
    client.node.settle()
    assert [answer.base_offset for answer in answers_of(client)] == [8]
    assert [answer.base_offset for answer in answers_of(other)] == [10, 12, 14]


@pytest.mark.parametrize("acks_all", ["page-cache", "sync"])
@pytest.mark.parametrize(
    ("size_bytes", "others"),
    [(SIZE_BYTES, 0), (3_000_000, 0), (1_200_000, 2)],
    ids=["a large one", "too large for the pool", "larger than what others have left"],
)
def test_a_client_that_waits_after_a_large_frame_owns_nothing(acks_all: str, size_bytes: int, others: int) -> None:
    """It may wait for hours, and who owns much, or is the one that may own more, keeps others from reading."""
    limit_bytes = 6_200_000
    node = make_node(
        acks_all,
        message_max_bytes=limit_bytes,
        socket_request_max_bytes=limit_bytes,
        queued_max_request_bytes=limit_bytes,
    )
    client = client_of(node, size_bytes=size_bytes)
    for _ in range(others):
        other = Exchange(node, client)
        for piece in pieces_of(large(1, 1_000_000)[:-1], 50_000):
            feed(other.connection, piece)
            node.settle()
    buffers = client.connections.shared.buffers
    owned_bytes = buffers.owned_bytes
    assert client.connection.get_buffer(-1)
    assert buffers.owned_bytes == owned_bytes
    feed(client.connection, large(1, size_bytes))
    client.connection.get_buffer(-1)
    node.settle()
    client.connection.get_buffer(-1)
    assert len(answers_of(client)) == 1
    assert buffers.owned_bytes == owned_bytes


@pytest.mark.parametrize("acks_all", ["page-cache", "sync"])
def test_a_large_frame_goes_to_the_log_before_the_next_one_is_read(acks_all: str) -> None:
    """One buffer takes them all, and what it holds is still in the processor's caches."""
    client = client_of(make_node(acks_all))
    data = large()
    ends, rooms = [], set()
    for _ in range(3):
        for piece in (data[:240_000], data[240_000:]):
            room = client.connection.get_buffer(-1)
            rooms.add(id(room.obj))
            room[: len(piece)] = piece
            client.connection.buffer_updated(len(piece))
        ends.append(stored(client))
    assert ends == [6, 8, 10]
    assert len(rooms) == 1
    client.node.settle()
    assert [answer.base_offset for answer in answers_of(client)] == [4, 6, 8]


def test_what_others_gathered_in_the_turn_comes_before_a_large_frame_behind_it() -> None:
    node = make_node()
    client = client_of(node)
    other = Exchange(node, client)
    feed(other.connection, frames_of([("plain", 1)])[0])
    feed(client.connection, large())
    feed(other.connection, frames_of([("plain", 1)])[0])
    node.settle()
    assert [answer.base_offset for answer in answers_of(other)] == [4, 8]
    assert [answer.base_offset for answer in answers_of(client)] == [6]


def test_a_large_frame_does_not_wait_for_the_end_of_a_turn_that_others_have_begun() -> None:
    client = client_of(make_node())
    other = Exchange(client.node, client)
    feed(other.connection, frames_of([("partition 1", 1)])[0])
    assert client.node.services.turn.has_work
    for end in (6, 8):
        feed(client.connection, large())
        assert stored(client) == end


@pytest.mark.parametrize("following_bytes", [1, 34_000, 70_000, SIZE_BYTES - 500, SIZE_BYTES + 500, 160_000, 400_000])
def test_frames_that_are_shorter_or_longer_than_the_ones_before_are_taken_whole(following_bytes: int) -> None:
    client = client_of(make_node())
    feed(client.connection, large(2, following_bytes) + large(2))
    client.node.settle()
    assert [answer.base_offset for answer in answers_of(client)] == [4, 6, 8, 10]


def test_a_large_frame_whose_rest_does_not_come_is_noted_as_incomplete() -> None:
    client = client_of(make_node())
    feed(client.connection, large()[:150_000])
    assert client.connection.reader.partial_since_ms == client.connections.shared.now_ms()
    assert client.connections.shared.buffers.owned_bytes > 0
    client.connection.connection_lost(None)
    client.end_turn()
    assert client.connections.shared.buffers.owned_bytes == 0


def test_a_client_that_may_own_no_more_reads_into_the_arena() -> None:
    """Where the memory for requests is used up, nothing is lent either."""
    node = make_node(queued_max_request_bytes=700_000, socket_request_max_bytes=700_000)
    client = client_of(node)
    others = [Exchange(node, client) for _ in range(2)]
    for other in others:
        feed(other.connection, large()[:270_000])
    feed(client.connection, large())
    for other in others:
        feed(other.connection, large()[270_000:])
    node.settle()
    assert sorted(answers_of(each)[0].base_offset for each in (client, *others)) == [4, 6, 8]


def test_the_next_frame_is_expected_to_be_as_long_as_the_last_one() -> None:
    """A read goes to its end and not beyond; small frames are read into the arena, however they came."""
    client = client_of(make_node())
    connection = client.connection
    for size_bytes in (SIZE_BYTES, 300_000, 90_000):
        data = large(1, size_bytes)
        feed(connection, data[:50_000])
        feed(connection, data[50_000:])
        assert len(connection.get_buffer(-1)) == len(data)
        client.node.settle()
        assert len(connection.get_buffer(-1)) == len(data)
    small = large(1, 1)
    for _ in range(2):
        for piece in pieces_of(small, 50):
            feed(connection, piece)
            client.node.settle()
        assert len(connection.get_buffer(-1)) == READ_BYTES


@pytest.mark.parametrize("acks_all", ["page-cache", "sync"])
@pytest.mark.parametrize("first_bytes", [1, 2, 3, 4, 5])
def test_what_an_earlier_frame_has_left_in_the_buffer_is_not_taken_for_the_length_of_the_next_one(
    acks_all: str, first_bytes: int
) -> None:
    client = client_of(make_node(acks_all))
    assert large()[:3] == large(1, SIZE_BYTES - 4)[:3]
    data = large(1, SIZE_BYTES - 4)
    feed(client.connection, data[:first_bytes])
    feed(client.connection, data[first_bytes:])
    client.node.settle()
    assert [answer.base_offset for answer in answers_of(client)] == [4]


def test_a_large_frame_waits_where_the_turn_has_been_long() -> None:
    client = client_of(make_node())
    client.node.services.turn.is_long = True
    feed(client.connection, large())
    assert stored(client) == 4
    client.node.settle()
    assert [answer.base_offset for answer in answers_of(client)] == [4]


def test_a_large_frame_waits_for_those_that_have_waited_for_longer() -> None:
    client = client_of(make_node())
    other = Exchange(client.node, client)
    client.node.services.turn.is_long = True
    feed(other.connection, frames_of([("plain", 1)])[0])
    client.node.services.turn.is_long = False
    feed(client.connection, large())
    client.node.settle()
    assert [answer.base_offset for answer in answers_of(other)] == [4]
    assert [answer.base_offset for answer in answers_of(client)] == [6]


def test_no_large_frame_starts_once_the_connection_is_about_to_be_closed() -> None:
    client = client_of(make_node())
    client.connection.close("of a test")
    feed(client.connection, large(2))
    client.node.settle()
    assert stored(client) == 4
    assert client.transport.closed


@pytest.mark.parametrize("first_bytes", [0, 100, 200_000])
def test_no_large_frame_starts_while_the_client_takes_no_replies(first_bytes: int) -> None:
    client = client_of(make_node())
    data = large()
    if first_bytes:
        feed(client.connection, data[:first_bytes])
    else:
        client.connection.get_buffer(-1)  # nothing came
    client.connection.pause_writing()
    for piece in pieces_of(data[first_bytes:], 60_000):
        if not client.transport.is_paused or len(client.connection.get_buffer(-1)) >= len(piece):
            read(client, piece)
            first_bytes += len(piece)
    assert stored(client) == 4
    client.connection.resume_writing()
    client.node.settle()
    feed(client.connection, data[first_bytes:])
    client.node.settle()
    assert [answer.base_offset for answer in answers_of(client)] == [4]


def test_behind_a_long_poll_no_frame_is_noted_as_incomplete() -> None:
    """It is not looked at before the poll has its answer, however long that takes."""
    client = client_of(make_node())
    feed(client.connection, frame(fetch_request("t", 4, max_wait_ms=10_000), 11, 7) + large()[:100])
    assert client.connection.reader.partial_since_ms is None
    assert client.connections.shared.buffers.owned_bytes > 0


def test_a_frame_is_incomplete_since_its_first_byte_came() -> None:
    client = client_of(make_node())
    now_ms = 1000
    client.connections.shared.now_ms = lambda: now_ms
    for piece in [*pieces_of(large(1, 400_000)[:3], 1), *pieces_of(large(1, 400_000)[3:-1], 50_000)]:
        feed(client.connection, piece)
        client.node.settle()
        assert client.connection.reader.partial_since_ms == 1000
        now_ms += 1


@pytest.mark.parametrize("frame_bytes", [64 << 10, 128 << 10, 256 << 10, 512 << 10])
def test_a_malformed_frame_that_fills_its_buffer_ends_the_connection_and_what_is_behind_it_goes_nowhere(
    frame_bytes: int,
) -> None:
    client = Exchange(make_node())
    malformed = large(1, frame_bytes)[: frame_bytes // 2].ljust(frame_bytes, b"\xff")
    malformed = (frame_bytes - 4).to_bytes(4, "big") + malformed[4:]
    feed(client.connection, malformed[:1000])
    feed(client.connection, malformed[1000:] + b"and more")
    client.node.settle()
    assert client.transport.closed
    assert stored(client) == 0
    client.connection.connection_lost(None)
    client.end_turn()
    assert client.connections.shared.buffers.owned_bytes == 0


def make_buffers(max_owned_bytes: int = 1 << 30) -> ReceiveBuffers:
    return ReceiveBuffers(Turn(lambda: 0), max_owned_bytes)


def test_a_buffer_that_is_used_again_holds_nothing_of_who_had_it_before() -> None:
    buffers = make_buffers()
    first = buffers.take(70_000)
    for is_lent in (False, True):
        first.start, first.end, first.due = 1, 2, 3
        buffers.give_back_now(first, None)
        if is_lent:
            assert buffers.lend(70_000) is first
            buffers.own(first)
        else:
            assert buffers.take(70_000) is first
        assert (first.start, first.end, first.due) == (0, 0, 0)
        assert buffers.owned_bytes == first.capacity


def test_only_what_the_pool_takes_back_is_lent() -> None:
    buffers = make_buffers(POOL_BYTES)
    assert buffers.lend(POOL_BYTES // 4 + 1) is None
    for _ in range(4):
        lent = buffers.lend(POOL_BYTES // 4)
        assert lent is not None
        buffers.own(lent)
    assert buffers.owned_bytes == POOL_BYTES
    assert buffers.lend(4096) is None
    buffers.give_back_now(lent, None)
    assert buffers.lend(POOL_BYTES // 4) is lent
    assert buffers.lend(4096) is not None


def test_one_alone_may_own_more_than_there_is() -> None:
    buffers = make_buffers(8192)
    buffers.take(4096)
    assert buffers.may_own(4096, "first")
    assert buffers.may_own(4097, "exempt")
    assert not buffers.may_own(4097, "first")
    assert buffers.may_own(1 << 20, "exempt")
    assert buffers.may_own(4096, "first")
    buffers.release_exemption("first")
    assert not buffers.may_own(4097, "first")
    buffers.release_exemption("exempt")
    assert buffers.may_own(4097, "first")


def test_who_waits_for_memory_is_called_when_a_large_frame_was_answered_at_once() -> None:
    buffers = make_buffers(8192)
    first, _ = buffers.take(4096), buffers.take(4096)
    assert buffers.may_own(1, "exempt")
    assert not buffers.may_own(1, "waits")
    called = []
    buffers.wait(lambda: called.append(buffers.may_own(1, "waits")))
    buffers.give_back_now(first, "first")
    assert called == [True]


def test_what_is_lent_again_takes_the_place_of_the_oldest_in_a_full_pool() -> None:
    buffers = make_buffers()
    oldest, *others = [buffers.take(POOL_BYTES // 4) for _ in range(4)]
    for held in (oldest, *others):
        buffers.give_back_now(held, None)
    lent = buffers.lend(4096)
    assert lent is not None
    buffers.own(lent)
    assert [buffers.take(POOL_BYTES // 4) for _ in range(3)] == others[::-1]
    assert buffers.owned_bytes == 3 * (POOL_BYTES // 4) + 4096
    assert buffers.take(POOL_BYTES // 4) is not oldest


def test_where_the_memory_is_used_up_no_more_is_held_than_has_come() -> None:
    buffers = make_buffers(70_000)
    tail = memoryview(large())[:10]
    assert buffers.hold(tail, "first", 1 << 20).capacity == 65_536
    assert buffers.may_own(1 << 20, "exempt")
    assert buffers.hold(tail, "second", 1 << 20).capacity == 4096


def test_who_waits_for_memory_is_called_when_the_turn_ends_in_which_it_was_given_back() -> None:
    turn = Turn(lambda: 0)
    buffers = ReceiveBuffers(turn, 8192)
    first, _ = buffers.take(4096), buffers.take(4096)
    assert buffers.may_own(1, "exempt")
    called = []
    buffers.wait(lambda: called.append(buffers.may_own(1, "waits")))
    buffers.give_back(first)
    assert called == []
    turn.end()
    assert called == [True]


def test_who_was_answered_at_once_is_the_exempt_one_no_more() -> None:
    buffers = make_buffers(4096)
    held = buffers.take(8192)
    assert buffers.may_own(8192, "first")
    buffers.take(4096)
    buffers.give_back_now(held, "first")
    assert buffers.may_own(4096, "second")
    assert not buffers.may_own(4096, "first")


@pytest.mark.parametrize(
    ("front_bytes", "frame_bytes", "came_bytes", "due", "room_bytes"),
    [
        (0, 4096, 3, 0, 8189),
        (0, 4096, 4, 4096, 4092),
        (0, 4096, 4095, 4096, 1),
        (0, 4096, 4096, 0, 4096),
        (0, 4096, 5000, 0, 3192),
        (0, 8192, 10, 8192, 8182),
        (0, 8193, 10, 0, 8182),
        (7, 4096, 10, 4103, 4086),
    ],
)
def test_a_read_goes_to_the_end_of_the_frame_as_soon_as_that_is_known_and_has_room(
    front_bytes: int, frame_bytes: int, came_bytes: int, due: int, room_bytes: int
) -> None:
    held = HeldBytes(8192)
    held.due = 1
    data = (frame_bytes - 4).to_bytes(4, "big") + bytes(8192)
    held.fill(memoryview(b"-" * front_bytes + data[:came_bytes]))
    assert held.due == 0
    held.start = front_bytes
    assert len(held.room(1 << 20, is_waiting=False)) == room_bytes
    assert len(held.room(1 << 20, is_waiting=True)) == 8192 - front_bytes - came_bytes
    held.expect(1 << 20)
    assert held.due == due


@pytest.mark.parametrize("acks_all", ["page-cache", "sync"])
def test_a_client_that_never_stops_sending_large_frames_lets_others_be_read(acks_all: str) -> None:
    """The loop reads on as long as reads are filled, and each large frame goes to the log within its read."""
    client = client_of(make_node(acks_all))
    metrics = client.connections.shared.metrics
    stream = large(60)
    for _ in range(3):
        before = metrics.bytes_received
        feed(client.connection, stream)
        read_bytes = metrics.bytes_received - before
        assert 0 < read_bytes <= LARGE_READ_BYTES + len(large())
        assert client.transport.is_paused
        stream = stream[read_bytes:]
        client.node.settle()
        assert not client.transport.is_paused
    deliver(client, stream)
    client.node.settle()
    assert [answer.base_offset for answer in answers_of(client)] == list(range(4, 124, 2))
