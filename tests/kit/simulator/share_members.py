"""A simulated member of a share group: it joins, fetches from any partitions of its share session, and says of each
record what it has done with it, or nothing at all. It loses its connection, and makes mistakes.

A member has one request under way at a time. What the answers may say is in `share_model.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kit.simulator.admin import NAMES
from kit.simulator.look_up_audit import LATEST, LOOK_UP_VERSION, look_up_request
from kit.simulator.model import Violation
from kit.simulator.readers import stored_records
from kit.simulator.share_model import NOWHERE, Acknowledgement, Delivery, Session, SharePartitionModel
from kit.simulator.share_requests import (
    ACKNOWLEDGE_VERSION,
    FETCH_VERSION,
    HEARTBEAT_VERSION,
    Limits,
    acknowledge_request,
    batches_of,
    fetch_request,
)

from ottla.protocol.api.list_offsets import ListOffsetsResponse
from ottla.protocol.api.share_acknowledge import ShareAcknowledgeResponse
from ottla.protocol.api.share_fetch import AcknowledgeType, ShareFetchResponse
from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulator.clients import Line
    from kit.simulator.share_model import ShareModel
    from kit.simulator.transactions import Transactions

JOINS, LEAVES = 0, -1
OPENS, ENDS = 0, -1
LOST: Final = 0.05
"""How often a member loses its connection while it waits for an answer."""
MISTAKES: Final = 0.1
"""How many acknowledgements are wrong."""
RENEWALS: Final = 0.15
"""How many ask for more time."""
OF_THE_SESSION: Final = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
OF_THE_RECORDS: Final = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)
KINDS: Final = (
    *[AcknowledgeType.ACCEPT] * 6,
    *[AcknowledgeType.RELEASE] * 2,
    AcknowledgeType.REJECT,
)


@dataclass
class Held:
    """A record that the member has."""

    delivery: Delivery
    is_record: bool
    """Whether there is one at the offset."""


@dataclass
class Sent:
    """A request of a session."""

    session: Session
    epoch: int
    number: int
    sent_ms: float
    changes: int
    """Those of the group's offsets, until then."""
    partitions: list[tuple[SharePartitionModel, int]]
    """Those of which it may bring records, and their generations."""
    acknowledgements: dict[tuple[UUID, int], Acknowledgement] = field(default_factory=dict)
    limits: Limits | None = None


class ShareMember:
    """See the module. `line` is given anew for each life of the broker, and after each loss of a connection."""

    def __init__(
        self,
        group: str,
        known: ShareModel,
        chance: random.Random,
        clock: ManualClock,
        transactions: Transactions | None,
    ) -> None:
        self.group = group
        self._known = known
        self._chance = chance
        self._clock = clock
        self._transactions = transactions
        self.line: Line
        self.new_line: Callable[[], Line]
        self._life = 0
        self._sent: Sent | None = None
        self.is_waiting = False
        # What it is to the group.
        self.member_id = ""
        self._epoch = JOINS
        self._has_lost_an_answer = False
        self._may_be_unknown = False
        # What it has.
        self._session: Session | None = None
        self._session_epoch = OPENS
        self._changes = 0
        """Those of the group's offsets when the session was answered last."""
        self._is_sure = False
        """Whether the broker has the session, at this epoch."""
        self._places: dict[tuple[UUID, int], SharePartitionModel] = {}
        self._held: dict[SharePartitionModel, dict[int, Held]] = {}
        self.failed: set[tuple[UUID, int]] = set()
        """Partitions that could not be read, as the last answer says."""
        self.got: list[tuple[SharePartitionModel, int]] = []
        """What the last answer has brought."""

    # -- its connection -----------------------------------------------------------------------------------------------

    def reconnect(self) -> None:
        """The broker has restarted: answers of before will never come, and no session is there any more."""
        self._life += 1
        self._has_lost_an_answer |= self.is_waiting
        self.is_waiting, self._sent = False, None
        self._end_session()

    def note_power_cut(self) -> None:
        """The group may be what it was before, where it does not sync."""
        self._has_lost_an_answer = self._may_be_unknown = True

    def lose_connection(self) -> None:
        """The connection ends, and the session with it; another one begins."""
        self._life += 1
        self.line.end()
        self._has_lost_an_answer |= self.is_waiting
        sent, self._sent, self.is_waiting = self._sent, None, False
        if sent is not None:
            self._lose_answer(sent)
        self._end_session()
        self.line = self.new_line()

    @staticmethod
    def _lose_answer(sent: Sent) -> None:
        for partition, _ in sent.partitions:
            partition.fetch_lost()
        for one in sent.acknowledgements.values():
            one.partition.forget_answer(one)

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.is_over = True
        self._session, self._session_epoch, self._is_sure = None, OPENS, False
        self._places, self._held = {}, {}

    # -- what it does -------------------------------------------------------------------------------------------------

    def act(self) -> None:
        """One request, if none is under way."""
        if self.is_waiting:
            if self._chance.random() < LOST:
                self.lose_connection()
            return
        if not self.member_id or self._chance.random() < 0.12:
            self.heartbeat()
            return
        what = self._chance.random()
        if self._session is None or what < 0.45:
            self.fetch(self._drawn_limits(), self._drawn_acknowledgements() if self._chance.random() < 0.4 else [])
        elif what < 0.85:
            if self._held:
                self.acknowledge(self._drawn_acknowledgements(), renews=self._chance.random() < RENEWALS)
        elif what < 0.89:
            self.end_session()
        elif what < 0.92:
            self.lose_connection()
        elif what < 0.95:
            self._claim_another_epoch()
        else:
            self.fetch(self._drawn_limits(), [], forgotten=self._drawn_places(self._chance.randint(1, 2)))

    def _drawn_limits(self) -> Limits:
        chance = self._chance
        return Limits(
            max_wait_ms=chance.choice((0, 0, 0, 500, 5_000)),
            min_bytes=chance.choice((0, 1, 1, 100)),
            max_bytes=chance.choice((1 << 20, 1 << 20, 1 << 20, 300)),
            max_records=chance.choice((1, 2, 5, 20, 500)),
            batch_size=chance.choice((1, 3, 500)),
            is_strict=chance.random() < 0.4,
        )

    def _drawn_places(self, count: int) -> list[tuple[UUID, int]]:
        places = list(self._places)
        return self._chance.sample(places, min(count, len(places)))

    # -- the group ----------------------------------------------------------------------------------------------------

    def heartbeat(self, *, leaves: bool = False) -> None:
        """Join, tell that it lives, or leave."""
        epoch = self._epoch
        if epoch == JOINS:
            if leaves:
                return
            self.member_id = self.member_id or str(UUID(int=self._chance.getrandbits(128)))
        elif leaves or self._chance.random() < 0.1:
            epoch = LEAVES
        request = ShareGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=epoch)
        if epoch == JOINS:
            request.subscribed_topic_names = NAMES
        life, self.is_waiting = self._life, True

        def answered(response: Response) -> None:
            assert isinstance(response, ShareGroupHeartbeatResponse)
            if life == self._life:
                self.is_waiting = False
                self._beat(response, epoch)

        if epoch == LEAVES:  # whatever comes of it; its share session stays, as in Kafka
            self._epoch, self._has_lost_an_answer, self._may_be_unknown = JOINS, False, False
        self.line.send(request, HEARTBEAT_VERSION, answered)

    def _beat(self, response: ShareGroupHeartbeatResponse, epoch: int) -> None:
        if epoch == LEAVES:
            self.member_id = ""
            self._end_session_unasked()
            return
        code = response.error_code
        if code == ErrorCode.NONE:
            self._has_lost_an_answer = self._may_be_unknown = False
            if response.member_epoch < epoch:
                raise Violation(f"share group {self.group}: epoch {epoch} of a member became {response.member_epoch}")
            self._epoch = response.member_epoch
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            if epoch != JOINS and not self._may_be_unknown:
                raise Violation(f"share group {self.group} has forgotten a member that it had taken in")
            self._forget()
        elif code == ErrorCode.FENCED_MEMBER_EPOCH:
            if not self._has_lost_an_answer:
                raise Violation(f"share group {self.group} fences a member for epoch {epoch}, the last that it got")
            self._forget()
        else:
            self._has_lost_an_answer = True

    def _forget(self) -> None:
        self._epoch, self._has_lost_an_answer, self._may_be_unknown = JOINS, False, False

    def _end_session_unasked(self) -> None:
        """It is another member from now on: what the session of the former one has ends by time, or the connection."""
        if self._session is not None:
            self.lose_connection()

    # -- fetches ------------------------------------------------------------------------------------------------------

    def fetch(
        self,
        limits: Limits,
        said: Sequence[Acknowledgement],
        *,
        forgotten: Sequence[tuple[UUID, int]] = (),
        of_all: bool = False,
    ) -> None:
        """Fetch, and acknowledge what is `said`; in a new session if there is none. `of_all`: from all partitions."""
        if self._session is None:
            self._session, said, forgotten = Session(), (), ()
        epoch = self._session_epoch
        added: dict[tuple[UUID, int], SharePartitionModel] = {}
        for topic in self._known.topics():
            for index in range(len(topic.partitions)):
                if of_all or self._chance.random() < (0.6 if epoch == OPENS else 0.1):
                    added[topic.id, index] = self._known.partition(self.group, topic, index)
        acknowledged = {(one.partition.topic.id, one.partition.index): one for one in said}
        added |= {place: one.partition for place, one in acknowledged.items()}
        forgotten = [place for place in forgotten if place not in acknowledged]
        self._places |= added
        sent = self._begin(epoch, list(self._places.values()), said)
        for place in forgotten:
            self._places.pop(place, None)
        sent.limits = limits
        request = fetch_request(
            self.group,
            self.member_id,
            epoch,
            limits,
            {place: batches_of(self._chance, acknowledged.get(place)) for place in sorted(added)},
            forgotten,
        )

        def answered(response: Response) -> None:
            if self._sent is sent:
                assert isinstance(response, ShareFetchResponse)
                self._fetched(sent, response)

        self.line.send(request, FETCH_VERSION, answered)

    def _begin(self, epoch: int, partitions: Sequence[SharePartitionModel], said: Sequence[Acknowledgement]) -> Sent:
        assert self._session is not None
        for one in partitions:
            one.in_flight += 1
        for ack in said:
            ack.partition.ask(ack)
        sent = Sent(
            self._session,
            epoch,
            self._known.next_number(),
            self._clock.monotonic_ms(),
            self._known.groups[self.group].changes,
            [(one, one.generation) for one in partitions],
            {(ack.partition.topic.id, ack.partition.index): ack for ack in said},
        )
        self._sent, self.is_waiting = sent, True
        self.got = []
        return sent

    def _fetched(self, sent: Sent, response: ShareFetchResponse) -> None:
        self._sent, self.is_waiting = None, False
        if not self._continues(sent, response.error_code):
            self._lose_answer(sent)
            return
        for partition, _ in sent.partitions:
            partition.in_flight -= 1
        lock_ms = response.acquisition_lock_timeout_ms
        self.failed.clear()
        generations = {(one.topic.id, one.index): (one, generation) for one, generation in sent.partitions}
        waiting, count, strict_count = dict(sent.acknowledgements), 0, 0
        for topic in response.responses:
            for answer in topic.partitions:
                place = (topic.topic_id, answer.partition_index)
                ack = waiting.pop(place, None)
                if ack is not None:
                    self._acknowledged(ack, answer.acknowledge_error_code, lock_ms)
                if place not in generations:
                    raise Violation(f"share group {self.group}: {place} is answered, and was not asked for")
                if answer.acquired_records:
                    count = self._take(sent, *generations[place], answer, lock_ms)
                    strict_count += count
                if answer.error_code != ErrorCode.NONE:
                    self.failed.add(place)
        if waiting:
            raise Violation(f"share group {self.group}: acknowledgements of {list(waiting)} are not answered")
        limits = sent.limits
        if limits is not None and limits.is_strict and strict_count > limits.max_records:
            raise Violation(f"share group {self.group}: {strict_count} records are given, {limits.max_records} may be")
        self._look_for_ends(
            [one for place, one in self._places.items() if place in generations and place not in self.failed]
        )

    def _look_for_ends(self, partitions: Sequence[SharePartitionModel]) -> None:
        """The group has begun in these partitions: not after their ends, which are looked up where nothing is known."""
        asked = {
            (one.topic.name, one.index): (one, one.generation)
            for one in partitions
            if one.most_start == NOWHERE and one.is_certain and self._known.is_there(one)
        }

        def answered(response: Response) -> None:
            assert isinstance(response, ListOffsetsResponse)
            for topic in response.topics:
                for answer in topic.partitions:
                    one, generation = asked[topic.name, answer.partition_index]
                    if answer.error_code == ErrorCode.NONE and self._known.is_there(one):
                        one.begun_before(answer.offset, generation)

        if asked:
            self.line.send(look_up_request(dict.fromkeys(sorted(asked), LATEST)), LOOK_UP_VERSION, answered)

    def _continues(self, sent: Sent, code: int) -> bool:
        """Whether a request was done. Raises Violation where the session has to be there, and is not."""
        if code == ErrorCode.NONE:
            if sent.epoch == ENDS:
                self._end_session()
            else:
                self._session_epoch, self._is_sure = sent.epoch + 1, True
                self._changes = self._known.groups[self.group].changes
            return True
        group = self._known.groups[self.group]
        is_sure = self._is_sure and group.keeps_sessions_since(self._changes)
        if code in OF_THE_SESSION and is_sure and sent.epoch in (ENDS, self._session_epoch):
            raise Violation(f"share group {self.group}: a session is refused, {ErrorCode.of(code).name}")
        for one in sent.acknowledgements.values():
            if code in OF_THE_SESSION:
                one.partition.refused(one)
        if code in OF_THE_SESSION:
            sent.acknowledgements.clear()
        self._end_session()
        return False

    def _take(
        self,
        sent: Sent,
        partition: SharePartitionModel,
        generation: int,
        answer: ShareFetchResponse.PartitionData,
        lock_ms: int,
    ) -> int:
        records = stored_records(bytes(answer.records or b""))
        known = partition.topic.partitions[partition.index]
        is_certain = partition.is_certain_since(generation)
        if not is_certain:
            partition.unseen += 1
        count, number, now_ms = 0, self._known.next_number(), self._clock.monotonic_ms()
        held = self._held.setdefault(partition, {})
        for entry in answer.acquired_records:
            for offset in range(entry.first_offset, entry.last_offset + 1):
                count += 1
                record = records.get(offset)
                where = f"{partition}, offset {offset}"
                delivery = Delivery(
                    sent.session,
                    generation,
                    entry.delivery_count,
                    sent.number,
                    number,
                    now_ms,
                    sent.sent_ms + lock_ms,
                    sent.changes,
                )
                held[offset] = Held(delivery, record is not None)
                self.got.append((partition, offset))
                if is_certain:
                    partition.deliver(offset, delivery, number)
                if not self._known.is_there(partition):
                    continue
                if record is None:
                    if offset in known.promised and not partition.topic.is_compacted:
                        raise Violation(f"{where}: it is delivered without its record")
                    continue
                if record.value is not None and record.value not in known.sent:
                    raise Violation(f"{where}: something that was never sent")
                known.note(offset, record, survives_power=partition.topic.syncs)
                one = None if self._transactions is None else self._transactions.transaction_of(record)
                if one is None or not partition.group.committed_only:
                    continue
                assert self._transactions is not None
                if not self._transactions.is_in_doubt(record, partition.topic, partition.index):
                    self._transactions.committed(one, f"{where} is delivered as committed")
        return count

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    def everything(self) -> list[Acknowledgement]:
        """Accept all that it has."""
        return [
            self._acknowledgement(
                partition,
                [
                    (offset, AcknowledgeType.ACCEPT if one.is_record else AcknowledgeType.GAP, one.delivery)
                    for offset, one in sorted(held.items())
                ],
            )
            for partition, held in self._held.items()
            if held
        ]

    def _drawn_acknowledgements(self) -> list[Acknowledgement]:
        """Of some partitions, of some records."""
        drawn = []
        for partition, held in self._held.items():
            if not held or self._chance.random() < 0.3:
                continue
            share = self._chance.choice((1.0, 1.0, 0.7, 0.3))
            usual = self._chance.choice(KINDS) if self._chance.random() < 0.7 else None
            said = []
            for offset, one in sorted(held.items()):
                if self._chance.random() >= share:
                    continue
                kind = usual or self._chance.choice(KINDS)
                if not one.is_record and kind is AcknowledgeType.ACCEPT:
                    kind = AcknowledgeType.GAP
                said.append((offset, kind, one.delivery))
            if said:
                drawn.append(self._acknowledgement(partition, said))
                drawn[-1].is_wrong = self._chance.random() < MISTAKES
        return drawn

    def _acknowledgement(
        self, partition: SharePartitionModel, said: list[tuple[int, AcknowledgeType, Delivery]]
    ) -> Acknowledgement:
        now_ms = self._clock.monotonic_ms()
        return Acknowledgement(partition, partition.generation, self._known.next_number(), now_ms, said)

    def acknowledge(self, said: Sequence[Acknowledgement], *, ends: bool = False, renews: bool = False) -> None:
        """Say this of the records, and nothing else; with `ends` it is the end of the session. `renews`: that each
        keeps its record.
        """
        if not said and not ends:
            return
        if renews:
            for ack in said:
                ack.said = [(offset, AcknowledgeType.RENEW, delivery) for offset, _, delivery in ack.said]
        epoch = ENDS if ends else self._session_epoch
        sent = self._begin(epoch, [], said)
        request = acknowledge_request(
            self.group,
            self.member_id,
            epoch,
            {(ack.partition.topic.id, ack.partition.index): batches_of(self._chance, ack) for ack in said},
            is_renew_ack=renews,
        )
        if ends and self._session is not None:
            self._session.is_over = True

        def answered(response: Response) -> None:
            if self._sent is not sent:
                return
            assert isinstance(response, ShareAcknowledgeResponse)
            self._sent, self.is_waiting = None, False
            if not self._continues(sent, response.error_code):
                self._lose_answer(sent)
                return
            for topic in response.responses:
                for answer in topic.partitions:
                    ack = sent.acknowledgements.pop((topic.topic_id, answer.partition_index))
                    self._acknowledged(ack, answer.error_code, response.acquisition_lock_timeout_ms)
            if sent.acknowledgements:
                raise Violation(f"share group {self.group}: acknowledgements are not answered")

        self.line.send(request, ACKNOWLEDGE_VERSION, answered)

    def _acknowledged(self, ack: Acknowledgement, code: int, lock_ms: int) -> None:
        partition = ack.partition
        held = self._held.get(partition, {})
        if code == ErrorCode.NONE:
            if ack.is_wrong:
                raise Violation(f"{partition}: a wrong acknowledgement is taken")
            partition.answered(ack, lock_ms, self._clock.monotonic_ms())
            for offset, kind, _ in ack.said:
                if kind is not AcknowledgeType.RENEW:
                    held.pop(offset, None)
            return
        if code not in OF_THE_RECORDS:
            partition.forget_answer(ack)
        else:
            partition.refused(ack)
            if not ack.is_wrong:
                self._require_refusal(ack, code)
        for offset, _, _ in ack.said:
            held.pop(offset, None)

    def _require_refusal(self, ack: Acknowledgement, code: int) -> None:
        """A member has a record for as long as its lock lasts."""
        partition, now_ms = ack.partition, self._clock.monotonic_ms()
        if (
            self._known.loses_states
            or not partition.is_certain_since(ack.generation)
            or not self._known.is_there(partition)
        ):
            return
        if partition.topic.name in self._known.model.deleting:
            return
        if all(now_ms < delivery.until_ms and delivery.generation == ack.generation for _, _, delivery in ack.said):
            offsets = [offset for offset, _, _ in ack.said]
            raise Violation(f"{partition}: {ErrorCode.of(code).name} for {offsets}, which the member has")

    def end_session(self) -> None:
        """Give up everything, but for what is acknowledged with that."""
        said = self._drawn_acknowledgements() if self._chance.random() < 0.5 else []
        if self._session is not None:
            self.acknowledge(said, ends=True)

    def _claim_another_epoch(self) -> None:
        """A request of an epoch that is not the session's: it is refused, and changes nothing."""
        if not self._is_sure:
            return
        epoch = self._session_epoch + self._chance.choice((1, -1, 7))
        if epoch <= OPENS:
            return
        request = acknowledge_request(self.group, self.member_id, epoch, {}, is_renew_ack=False)
        life, self.is_waiting = self._life, True

        def answered(response: Response) -> None:
            assert isinstance(response, ShareAcknowledgeResponse)
            if life != self._life:
                return
            self.is_waiting = False
            if response.error_code == ErrorCode.NONE:
                raise Violation(f"share group {self.group}: epoch {epoch} of a session is done out of turn")

        self.line.send(request, ACKNOWLEDGE_VERSION, answered)
