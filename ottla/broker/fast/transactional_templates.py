"""Templates of Produce requests with a transactional id, whose batches are part of a transaction.

The bytes before the records also name the transactional id, so a template belongs to one. The right to it was checked
when the template was learnt. The transaction coordinator is asked each time, in the step that gathers the batches
(docs/decisions/transactions-are-asked-in-the-step.md), and the answers wait for its record (`TransactionalRun`).

    frames of one template -> producer and epoch, from the batches' headers -> coordinator -> gathered

The slow path takes what the coordinator refuses, batches that are not part of a transaction, and batches of several
producers. All of it belongs to a turn: nothing is answered within the read. A client under a quota is charged as
without a transactional id (`charged_transactional_templates.py`); what the slow path takes is charged there.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

from ottla.broker.fast.produce_run import ProduceRun
from ottla.broker.fast.produce_template import ProduceTemplate
from ottla.broker.fast.produce_templates import ProduceTemplates
from ottla.broker.transactions.produce_admission import FIRST_VERSION_THAT_ADDS, for_version
from ottla.protocol.records.batch import TRANSACTIONAL_BIT, CorruptBatch, header_fields
from ottla.storage.log.append import BEGINS_AT_ZERO, TAKES_TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.context import ApiServices
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.in_flight_request import InFlightRequest
    from ottla.broker.runtime.metrics import MeterOf
    from ottla.broker.transactions.admission import Admission
    from ottla.protocol.api.produce import ProduceRequest
    from ottla.protocol.errors import KafkaError
    from ottla.protocol.types import Buffer


class TransactionalTemplate(ProduceTemplate):
    """The template of a transactional id and a partition."""

    __slots__ = ("_adds", "_coordinator", "_partitions", "_transactional_id")

    def __init__(
        self, request: ProduceRequest, version: int, partition: Partition, services: ApiServices, meter_of: MeterOf
    ) -> None:
        super().__init__(request, version, partition, services, meter_of)
        assert request.transactional_id is not None
        self.takes |= TAKES_TRANSACTIONS
        self._transactional_id = request.transactional_id
        self._partitions = frozenset({(partition.topic, partition.index)})
        self._adds = version >= FIRST_VERSION_THAT_ADDS
        if self._adds:
            self.takes |= BEGINS_AT_ZERO
        self._coordinator = services.transactions.get()

    def admit(self, entries: list[memoryview]) -> Admission | None:
        """The admission that the answers to these batches must wait for; the batches may be gathered now. None, with
        nothing done, where the slow path must answer one of them.
        """
        producer = None
        for records in entries:
            try:
                _, _, _, _, _, attributes, _, _, _, producer_id, epoch, _, _ = header_fields(records)
            except CorruptBatch:
                return None
            if not attributes & TRANSACTIONAL_BIT or (producer is not None and producer != (producer_id, epoch)):
                return None
            producer = producer_id, epoch
        assert producer is not None
        admission = self._coordinator.admit_batches(
            self._transactional_id, *producer, self._partitions, adds=self._adds
        )
        return None if admission.error is not None or admission.missing else admission


class TransactionalTemplates(ProduceTemplates):
    """The templates of one connection."""

    __slots__ = ()

    template_class = TransactionalTemplate
    is_transactional = True

    def start(
        self, view: memoryview, start: int, end: int, most: int, newest: InFlightRequest | None
    ) -> ProduceRun | None:
        """As `ProduceTemplates.start`."""
        frames = self._look(view, start, end, most)
        if frames is None:
            return None
        template, entries, correlation_ids, run_bytes, following = frames
        assert isinstance(template, TransactionalTemplate)
        admission = template.admit(entries)
        if admission is None:
            return None
        if isinstance(newest, TransactionalRun) and newest.goes_on(template, correlation_ids, following):
            run = newest
        else:
            make_run = self._make_run  # CPython is slow at looking up a slot and calling it in one expression
            made = make_run(template, correlation_ids, following, perf_counter_ns())
            assert isinstance(made, TransactionalRun)
            run = made
        template.partition.gather_run(entries, run_bytes, run, template.takes)
        run.rest_on(admission)
        return run

    def answer(self, view: memoryview, end: int, most: int) -> tuple[Sequence[Buffer], int] | None:
        """Always None: what the coordinator writes is appended at the end of a turn."""
        return None

    def sync(self, view: memoryview, end: int) -> list[Buffer] | InFlightRequest | None:
        """Always None, as `answer`."""
        return None


class TransactionalRun(ProduceRun):
    """A run whose answers are sent only when the coordinator's record is durable, too."""

    __slots__ = ("_held", "_missing_records", "_refusal")

    def __init__(self, template: TransactionalTemplate, correlation_ids: list[int], end: int, started_ns: int) -> None:
        super().__init__(template, correlation_ids, end, started_ns)
        self._held: list[bytes] | None = None
        """The answers, where only the coordinator's record is missing."""
        self._missing_records = 0
        self._refusal: KafkaError | None = None

    def rest_on(self, admission: Admission) -> None:
        """Wait for what the coordinator has written of the transactional id so far."""
        self._missing_records += 1
        admission.when_durable(self._recorded)  # calls immediately, where all is durable already

    def _recorded(self, error: KafkaError | None) -> None:
        self._missing_records -= 1
        if error is not None:
            self._refusal = error
        if self._held is not None:
            self._answered(self._held)

    def _answered(self, answers: list[bytes]) -> None:
        if self._missing_records:
            self._held = answers
            return
        if self._refusal is not None:
            answers = self._refused(self._refusal)
        super()._answered(answers)

    def _refused(self, refusal: KafkaError) -> list[bytes]:
        """The answers where the record is not durable: all of these batches are refused."""
        template = self._template
        error = for_version(refusal, template.version)
        if not self.is_done:
            elapsed_us = (perf_counter_ns() - self._started_ns) // 1000
            template.meter_of(error.code).note(elapsed_us, self._succeeded)
        self._succeeded = 0
        return [template.refusal(one, error.code, error.message, None) for one in self._correlation_ids]
