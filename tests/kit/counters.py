"""A toy coordinator: counters by name on their own internal topic, each gone `TTL_MS` after its last `add`.

`close` ends one in two phases, as a transaction ends: its total is kept under another key and answered, then announced
in another topic, and only when that is durable is it forgotten.
"""

from __future__ import annotations

from ottla.broker.coordination.definition import CoordinatorDefinition
from ottla.broker.coordination.effects import CoordinatorRecord, Effects, Now, Reply, Waiter
from ottla.broker.coordination.records import RecordCodec
from ottla.broker.coordination.runtime import CoordinatorRuntime
from ottla.broker.coordination.shard import CoordinatorShard, ShardContext
from ottla.broker.runtime.metrics import GroupCounters
from ottla.broker.services import Services
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message, Response, Struct, decode, encode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record
from ottla.protocol.stored.unknown import UnknownRecord
from ottla.protocol.types import Int64, String

TOPIC, ANNOUNCEMENTS = "__counters", "announcements"
TTL_MS, RETRY_MS, WRITE_TIMEOUT_MS = 60_000, 500, 5_000


class CounterKey(Message, key=1, versions="0"):
    name: String


class ClosingKey(Message, key=2, versions="0"):
    name: String


class Total(Message, versions="0"):
    total: Int64
    expires_at_ms: Int64 = -1


class CounterResponse(Response, versions="0"):
    total: Int64


def pack(part: Struct) -> bytes:
    assert isinstance(part, CounterKey | ClosingKey | Total)
    return (b"" if isinstance(part, Total) else part.message_key.to_bytes(2)) + encode(part, 0)


def unpack(key: bytes, value: bytes | None) -> tuple[Struct, Struct | None]:
    kind = {1: CounterKey, 2: ClosingKey}.get(int.from_bytes(key[:2]))
    if kind is None:
        return UnknownRecord(record_type=int.from_bytes(key[:2]), key=key, value=value), None
    return decode(kind, key, 0, 2), None if value is None else decode(Total, value, 0)


CODEC = RecordCodec(encode_key=pack, encode_value=pack, decode=unpack, newest_only={b"\0\1": b"\0\1"})


class Machine:
    def __init__(self) -> None:
        self.totals: dict[str, Total] = {}
        self.closing: dict[str, Total] = {}

    def replay(self, key: Struct, value: Struct | None) -> None:
        assert isinstance(key, CounterKey | ClosingKey)
        kept = self.totals if isinstance(key, CounterKey) else self.closing
        kept.pop(key.name, None)
        if isinstance(value, Total):
            kept[key.name] = value

    def add(self, name: str, amount: int, waiter: Waiter, now: Now) -> Effects:
        if name in self.closing:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{name} is being closed")
        total = amount + (self.totals[name].total if name in self.totals else 0)
        kept = Total(total=total, expires_at_ms=now.wall_ms + TTL_MS)
        return self.keep([(CounterKey(name=name), kept)], [(waiter, CounterResponse(total=total))])

    def close(self, name: str, waiter: Waiter) -> Effects:
        total = Total(total=self.totals[name].total)
        replies: list[Reply] = [(waiter, CounterResponse(total=total.total))]
        return self.keep([(CounterKey(name=name), None), (ClosingKey(name=name), total)], replies)

    def keep(self, records: list[CoordinatorRecord], replies: list[Reply] | None = None) -> Effects:
        for key, value in records:
            self.replay(key, value)
        return Effects(records, replies or [])


class CounterShard(CoordinatorShard):
    def __init__(self, context: ShardContext) -> None:
        super().__init__(context)
        self.machine = Machine()

    def replay(self, key: Struct, value: Struct | None) -> None:
        self.machine.replay(key, value)

    def begin_some(self) -> bool:
        for name in self.machine.totals:
            self._plan(name)
        for name in self.machine.closing:
            self._announce(name)
        return False

    def on_due(self, key: str) -> None:
        if key in self.machine.closing:
            self._announce(key)
        else:
            self.finish(key, self.machine.keep([(CounterKey(name=key), None)]))

    def add(self, name: str, amount: int, waiter: Waiter) -> None:
        self.finish(name, self.machine.add(name, amount, waiter, self.now()))
        self._plan(name)

    def read(self, name: str, waiter: Waiter) -> None:
        total = self.machine.totals.get(name, Total(total=0)).total
        self.finish(name, Effects(replies=[(waiter, CounterResponse(total=total))]))

    def close(self, name: str, waiter: Waiter) -> None:
        self.finish(name, self.machine.close(name, waiter))
        self.timer.plan(name, None)
        self.when_durable(name, lambda error: None if error else self._announce(name))

    def _plan(self, name: str) -> None:
        now = self.now()
        self.timer.plan(name, now.monotonic_ms + self.machine.totals[name].expires_at_ms - now.wall_ms)

    def _announce(self, name: str) -> None:
        def announced(error: BaseException | None) -> None:
            if error is None:
                self.finish(name, self.machine.keep([(ClosingKey(name=name), None)]))
            else:
                self.timer.plan(name, self.now().monotonic_ms + RETRY_MS)

        announcement = Record(0, 0, name.encode(), str(self.machine.closing[name].total).encode(), ())
        self.append_elsewhere(ANNOUNCEMENTS, 0, encode_batch([announcement]), announced)


def counters_of(services: Services, partitions: int = 1) -> CoordinatorRuntime[CounterShard]:
    definition = CoordinatorDefinition(
        topic=TOPIC,
        partitions=partitions,
        configs=(("cleanup.policy", "compact"),),
        noun="counter",
        codec=CODEC,
        make_shard=CounterShard,
        write_timeout_ms=WRITE_TIMEOUT_MS,
        counters=GroupCounters(),
    )
    return CoordinatorRuntime(services, definition)
