"""A change that was sent again because its first attempt got no answer: the refusal may be that attempt's own work.

Kafka's requests for topics have no identity by which a broker could recognize a repeat, so nobody can know whether the
topic that exists now was created by the first attempt or by another client. The error keeps its code, which programs
compare, and its message says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TypeVar

from ottla.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")


class UnansweredAttempts:
    """The attempts at one change. `code` is the refusal of a change that was made already; `work` says who made it."""

    def __init__(self, code: ErrorCode, work: str) -> None:
        self._code = code
        self._work = work
        self._is_in_doubt = False

    async def watch(self, sending: Awaitable[T]) -> T:
        """Wait for the answer of an attempt; note if none comes. Raises what `sending` raises."""
        try:
            return await sending
        except KafkaError:
            self._is_in_doubt = True
            raise

    def explained(self, refused: Mapping[str, KafkaError]) -> dict[str, KafkaError]:
        """The refusals by name, with a sentence more where an earlier attempt may be the reason."""
        return {name: self._explained(error) for name, error in refused.items()}

    def _explained(self, error: KafkaError) -> KafkaError:
        if not self._is_in_doubt or error.code is not self._code:
            return error
        return KafkaError(
            error.code, f"{error.message.rstrip('.')}. An earlier attempt got no answer; perhaps it {self._work}."
        )
