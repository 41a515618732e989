"""How long a task waits for brokers: it repeats a question for at most `kafka.delivery.timeout.ms`.

The clock's functions are passed in, for tests.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

from ottla.client_core.retries import Attempts, Backoff
from ottla.spark.cluster import Retriable
from ottla.spark.errors import BrokerUnavailable, WriteFailed

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

logger = logging.getLogger(__name__)

_SHORTEST_PAUSE_S = 0.001
"""A pause that is shorter than the clock's resolution would never end."""


class Patience:
    """The clock of a task, its pauses between attempts, and the time after which it gives up."""

    def __init__(
        self,
        delivery_timeout_ms: int,
        retry_backoff_ms: int,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.delivery_timeout_ms = delivery_timeout_ms
        self.backoff = Backoff(retry_backoff_ms, retry_backoff_ms)
        self.monotonic = monotonic
        self.sleep = sleep

    def give_up_at(self) -> float:
        """Return when to give up if there is no progress from now on."""
        return self.monotonic() + self.delivery_timeout_ms / 1000

    def pause(self, seconds: float) -> None:
        """Sleep, a millisecond at least."""
        self.sleep(max(seconds, _SHORTEST_PAUSE_S))

    def answer(self, question: Callable[[], T]) -> T:
        """Repeat a question until it is answered. Raises BrokerUnavailable or WriteFailed after the timeout."""
        attempts = Attempts(self.backoff, give_up_at=self.give_up_at(), last_at_the_end=True)
        while True:
            try:
                return question()
            except (BrokerUnavailable, Retriable) as problem:
                pause_s = attempts.failed(self.monotonic())
                if pause_s is None:
                    raise self.ending("nothing written", problem) from None
                if attempts.failures == 1:
                    logger.warning("%s; the task waits for it", problem)
            self.sleep(pause_s)

    def ending(self, what: str, problem: Exception) -> BrokerUnavailable | WriteFailed:
        """Return the error after the timeout: a broker that is away differs from one that answers with errors."""
        kind = BrokerUnavailable if isinstance(problem, BrokerUnavailable) else WriteFailed
        return kind(f"{what} within kafka.delivery.timeout.ms {self.delivery_timeout_ms}: {problem}")
