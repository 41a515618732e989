"""A transaction coordinator on a `FakeCluster`: the model answers, but for what the script says.

`codes` holds, per request class, codes to be answered next, one each (NONE: as it should be); `losses` how many
requests of a class are acted on, but answered by the end of the connection.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

from kit.fake_broker import HANG_UP, SILENCE, FakeCluster
from kit.transaction_model import ModelPartition, TransactionModel

from ottla.protocol.api import REGISTRY
from ottla.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.api.end_txn import EndTxnRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest
from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request

_ASKED = (
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
)


class FakeTransactions:
    """See the module. Topics are made here: `topic` returns the partitions of one."""

    def __init__(self, cluster: FakeCluster, version: int = 2) -> None:
        self.cluster = cluster
        self.model = TransactionModel({}, version)
        self.codes: dict[type[Request], deque[ErrorCode]] = defaultdict(deque)
        self.losses: dict[type[Request], int] = defaultdict(int)
        self.silent: set[type[Request]] = set()
        """Requests that are never answered, and not acted on."""
        self.coordinator = 0
        cluster.features["transaction.version"] = version
        cluster.handlers[FindCoordinatorRequest] = self._find
        for kind in _ASKED:
            cluster.handlers[kind] = self._answer

    def topic(self, name: str, partitions: int = 1) -> list[ModelPartition]:
        """Make a topic."""
        made = [ModelPartition() for _ in range(partitions)]
        self.cluster.topics[name] = list(made)
        self.model.add({(name, index): partition for index, partition in enumerate(made)})
        return made

    def refuse(self, kind: type[Request], *codes: ErrorCode) -> None:
        """Answer the next requests of a kind with these codes."""
        self.codes[kind].extend(codes)

    def asked(self) -> list[str]:
        """The requests of transactions that came, by name."""
        seen = [type(request) for _, request, _ in self.cluster.requests]
        return [kind.__name__.removesuffix("Request") for kind in seen if kind in _ASKED]

    def _find(self, request: Request, version: int) -> FindCoordinatorResponse:
        assert isinstance(request, FindCoordinatorRequest)
        codes = self.codes[FindCoordinatorRequest]
        found = [
            FindCoordinatorResponse.Coordinator(
                key=key,
                node_id=self.coordinator,
                host="127.0.0.1",
                port=self.cluster.ports[self.coordinator],
                error_code=codes.popleft() if codes else ErrorCode.NONE,
            )
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=found)

    def _answer(self, request: Request, version: int) -> Any:
        kind = type(request)
        if kind in self.silent:
            return SILENCE
        code = self.codes[kind].popleft() if self.codes[kind] else ErrorCode.NONE
        if code:
            return REGISTRY[kind.message_key].refused(request, version, code, "as the test wants it")
        answer = self.model.answer(request)
        if self.losses[kind]:
            self.losses[kind] -= 1
            return HANG_UP
        return answer
