"""The memory for answers: one bound over what is read and what is not taken, and a line in which everybody gets on."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from kit.clock import ManualClock

from ottla.broker.runtime.answer_memory import LEAST_SHARE_BYTES, PATIENCE_MS, WAIT_MOST_MS, AnswerMemory, Reservation
from ottla.broker.runtime.timers import Timers
from ottla.broker.runtime.turn import Turn

MIB = 1 << 20


@dataclass(eq=False)
class Client:
    """A connection whose client takes nothing."""

    memory: AnswerMemory
    reasons: list[str] = field(default_factory=list)
    aborted: bool = False

    def close(self, reason: str) -> None:
        self.reasons.append(reason)

    def abort(self) -> None:
        self.aborted = True
        self.memory.note_taken(self)


class Shell:
    def __init__(self, max_bytes: int = 10 * MIB) -> None:
        self.clock = ManualClock()
        self.turn = Turn(self.clock.wall_ms)
        self.timers = Timers()
        self.memory = AnswerMemory(max_bytes, self.turn, self.timers, self.clock.monotonic_ms)
        self.came: list[tuple[str, Reservation | None]] = []

    def wait(self, name: str, size_bytes: int):
        return self.memory.wait(size_bytes, lambda reservation: self.came.append((name, reservation)))

    def reserve(self, size_bytes: int) -> Reservation:
        reservation = self.memory.reserve(size_bytes)
        assert reservation is not None
        return reservation

    def names(self) -> list[str]:
        self.turn.end()
        return [name for name, _ in self.came]

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.run_due(self.clock.monotonic_ms())
        self.turn.end()


@pytest.fixture
def shell() -> Shell:
    return Shell()


def test_what_is_read_counts_until_it_is_given_back(shell: Shell) -> None:
    first = shell.reserve(6 * MIB)
    assert shell.memory.reserve(6 * MIB) is None
    second = shell.reserve(4 * MIB)
    assert shell.memory.reserved_bytes == 10 * MIB
    first.release()
    first.release()
    assert shell.memory.reserved_bytes == 4 * MIB
    second.resize(MIB)
    assert shell.memory.reserved_bytes == MIB
    second.release()
    second.resize(5 * MIB)
    assert shell.memory.reserved_bytes == 0


def test_one_answer_may_be_larger_than_all_there_is(shell: Shell) -> None:
    large = shell.reserve(50 * MIB)
    assert shell.memory.reserve(1) is None
    large.release()
    assert shell.memory.reserve(1) is not None


def test_the_line_goes_on_in_the_order_of_asking_and_nobody_passes(shell: Shell) -> None:
    held = shell.reserve(8 * MIB)
    shell.wait("large", 6 * MIB)
    shell.wait("small", MIB)
    assert shell.memory.reserve(1) is None  # there is room, but others have asked before
    assert shell.names() == []
    held.release()
    assert shell.names() == ["large", "small"]
    assert shell.memory.reserved_bytes == 7 * MIB


def test_what_comes_back_lets_in_as_many_as_fit(shell: Shell) -> None:
    held = [shell.reserve(5 * MIB), shell.reserve(5 * MIB)]
    for number in range(3):
        shell.wait(str(number), 2 * MIB)
    held[0].release()
    assert shell.names() == ["0", "1"]
    held[1].resize(2 * MIB)
    assert shell.names() == ["0", "1", "2"]


def test_who_leaves_the_line_lets_the_next_one_in(shell: Shell) -> None:
    shell.reserve(8 * MIB)
    leave = shell.wait("large", 6 * MIB)
    shell.wait("small", MIB)
    leave()
    leave()
    assert shell.names() == ["small"]
    assert shell.memory.waiting == 0
    assert shell.memory.reserved_bytes == 9 * MIB


def test_what_clients_leave_counts_in_the_same_bound_and_they_have_some_patience(shell: Shell) -> None:
    clients = [Client(shell.memory) for _ in range(5)]
    for client in clients:
        shell.memory.note_unsent(client, 2 * MIB)
    assert shell.memory.reserve(3 * MIB) is None
    shell.wait("reader", 3 * MIB)
    shell.pass_time(PATIENCE_MS - 1)
    assert shell.came == []
    assert not any(client.aborted for client in clients)
    shell.pass_time(1)
    assert shell.names() == ["reader"]
    assert [client.aborted for client in clients] == [True, True, False, False, False]
    assert "ottla.connections.max.unsent.bytes=10485760" in clients[0].reasons[0]


def test_a_client_that_takes_its_answer_in_time_is_not_closed(shell: Shell) -> None:
    clients = [Client(shell.memory) for _ in range(5)]
    for client in clients:
        shell.memory.note_unsent(client, 2 * MIB)
    shell.wait("reader", 3 * MIB)
    shell.memory.note_taken(clients[3])
    assert shell.names() == []
    shell.memory.note_taken(clients[0])
    assert shell.names() == ["reader"]
    assert not any(client.aborted for client in clients)


def test_behind_many_that_leave_their_answers_the_line_gets_on(shell: Shell) -> None:
    """Everybody who waits for longer than clients may leave their answers is let in, one after the other."""
    for _ in range(5):
        shell.memory.note_unsent(Client(shell.memory), 2 * MIB)
    for number in range(8):
        shell.wait(str(number), 2 * MIB)
    shell.pass_time(PATIENCE_MS)
    for number in range(8):
        assert len(shell.names()) == number + 1
        _, reservation = shell.came[number]
        assert reservation is not None
        reservation.release()
        shell.memory.note_unsent(Client(shell.memory), 2 * MIB)
        assert shell.memory.reserved_bytes + shell.memory.unsent_bytes <= 10 * MIB


def test_who_waits_for_too_long_is_answered_without(shell: Shell) -> None:
    held = shell.reserve(10 * MIB)
    shell.wait("first", MIB)
    shell.pass_time(1_000)
    shell.wait("second", MIB)
    shell.pass_time(WAIT_MOST_MS - 1_000)
    assert shell.came == [("first", None)]
    held.release()
    assert shell.names() == ["first", "second"]
    assert shell.came[1][1] is not None


def test_a_timer_of_who_has_left_does_not_delay_the_next(shell: Shell) -> None:
    held = shell.reserve(10 * MIB)
    shell.wait("first", MIB)
    shell.pass_time(PATIENCE_MS)  # from now on only its deadline is looked for
    shell.memory.note_unsent(Client(shell.memory), 2 * MIB)
    shell.wait("second", 20 * MIB)
    held.release()
    assert shell.names() == ["first"]
    assert shell.came[0][1] is not None
    shell.came[0][1].release()
    shell.pass_time(PATIENCE_MS)
    assert shell.names() == ["first", "second"]


def test_who_comes_behind_one_that_has_left_an_empty_line_waits_from_its_own_time_on(shell: Shell) -> None:
    held = shell.reserve(10 * MIB)
    leave = shell.wait("first", MIB)
    shell.pass_time(PATIENCE_MS)
    leave()
    shell.memory.note_unsent(Client(shell.memory), 10 * MIB)
    held.release()
    shell.wait("second", MIB)
    shell.pass_time(PATIENCE_MS)
    assert shell.names() == ["second"]


def fail(_: Reservation | None) -> None:
    raise MemoryError


def test_one_that_fails_when_it_is_let_in_does_not_hold_up_the_others(shell: Shell) -> None:
    """Not even until the next look at the line, which may be seconds away."""
    held = shell.reserve(10 * MIB)
    shell.memory.wait(MIB, fail)
    shell.wait("second", MIB)
    shell.pass_time(PATIENCE_MS)
    held.release()
    shell.turn.end()  # the first one is let in, and fails
    shell.turn.end()
    assert shell.names() == ["second"]


def test_one_that_fails_when_it_has_waited_for_too_long_does_not_hold_up_the_others(shell: Shell) -> None:
    """It was let go by the only timer that there was: another must stand there for the next one."""
    shell.reserve(10 * MIB)
    shell.memory.wait(MIB, fail)
    shell.pass_time(1_000)
    shell.wait("second", MIB)
    with pytest.raises(MemoryError):
        shell.pass_time(WAIT_MOST_MS - 1_000)
    shell.pass_time(1_000)
    assert shell.came == [("second", None)]


def test_a_share_is_smaller_while_others_wait(shell: Shell) -> None:
    alone = shell.memory.share_bytes
    shell.reserve(10 * MIB)
    shell.wait("another", MIB)
    assert LEAST_SHARE_BYTES <= shell.memory.share_bytes < alone < 10 * MIB


def test_a_turn_that_has_copied_its_share_is_long(shell: Shell) -> None:
    shell.memory.note_copied(MIB)
    assert not shell.turn.is_long
    shell.memory.note_copied(MIB)
    assert shell.turn.is_long
    assert shell.memory.is_turn_full
    shell.turn.end()
    assert not shell.memory.is_turn_full
    shell.memory.note_copied(1)
    assert not shell.turn.is_long
