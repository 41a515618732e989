"""One run of `ottla consume`: finds the place to begin, reads until the end that was asked for, and writes lines.

Nothing that was not written is committed or accepted. `consume.py` has the command, and makes the lines.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.cli.client_properties import options_of
from ottla.cli.failures import Failure, reader_is_gone
from ottla.cli.partitions import require_known
from ottla.cli.show import show_time
from ottla.shown import counted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ottla.cli.progress import Progress
    from ottla.cli.waiting import Waiting
    from ottla.client import Consumer, ConsumerRecord, TopicPartition

POLL_MS: Final = 1_000
_MEMBERSHIPS: Final = {
    "consumer": "read it with --group {}, or choose another name",
    "share": "read it with --share-group {}, or choose another name",
    "streams": "only its application can be a member; choose another name",
}
"""How a group of each kind is read."""
LIMITS: Final[dict[str, object]] = {"client_id": "ottla-consume", "default_api_timeout_ms": 30_000}
"""Options of the command's clients."""


class Start(NamedTuple):
    """Where a consumer without a group begins; without any of these with the next record."""

    from_beginning: bool
    offset: int | None
    timestamp: int | None


class Reading:
    """See the module. `run` reads alone or in a consumer group, `run_in_share_group` in a share group."""

    def __init__(
        self,
        topic: str,
        partitions: tuple[int, ...],
        start: Start,
        options: dict[str, Any],
        max_messages: int | None,
        exit_at_end: bool,
        line: Callable[[ConsumerRecord], bytes],
        progress: Progress,
        waiting: Waiting,
    ) -> None:
        self._topic = topic
        self._wanted = partitions
        self._start = start
        self._options = options
        self._group_id: str | None = options.get("group_id")
        self.on_waiting: Callable[[str], bool] = _say_nothing
        """Called with a line that says what the command waits for; returns whether it was shown."""
        self._is_said = False
        self._left = max_messages
        self._exit_at_end = exit_at_end
        self._line = line
        self._progress = progress
        self._waiting = waiting
        self._waits_for = ""
        self._out = sys.stdout.buffer

    async def run(self, servers: str) -> None:
        """Read the chosen partitions, or as a member of a group."""
        from ottla.client import Consumer, TopicPartition

        known = await self._known_partitions(servers)
        if self._group_id is not None:
            await self._as_member(servers, "consumer", self.run_in_group(servers))
            return
        chosen = [TopicPartition(self._topic, one) for one in self._choose(known)]
        async with Consumer(servers, **self._options) as consumer:
            await self._place(consumer, chosen)
            self._say(self._waiting_words())
            self._wait_for_records()
            await self._read(consumer, chosen)

    async def _known_partitions(self, servers: str) -> list[int]:
        """Return the topic's partitions. Raises Failure for a missing topic, for which a consumer would wait."""
        import difflib

        from ottla.client import Admin, AdminError, ErrorCode
        from ottla.client.options import AdminOptions

        topic = self._topic
        async with Admin(servers, **options_of(AdminOptions, servers, LIMITS)) as admin:
            try:
                return [one.partition for one in (await admin.describe_topics([topic]))[topic].partitions]
            except AdminError as refused:
                code = refused.errors[topic].code
                if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                near = difflib.get_close_matches(topic, await admin.list_topics(include_internal=True), n=1)
        meant = f"did you mean {near[0]}? else " if near else ""
        raise Failure(f"there is no topic {topic}: {meant}`ottla topics create {topic}` ({code.name})")

    async def run_in_share_group(self, servers: str) -> None:
        """Read as a member of a share group, and accept what was printed."""
        from ottla.cli.consume_share_group import read_share_group

        await self._known_partitions(servers)
        self._say(f"joining share group {self._group_id} to read {self._topic}; Ctrl-C ends")
        reading = read_share_group(
            servers,
            self._topic,
            self._options,
            self._left,
            write=self._write,
            wait_for=lambda what: self._wait_for(what, is_ordinary=True),
        )
        await self._as_member(servers, "share", reading)

    async def _as_member(self, servers: str, kind: str, reading: Awaitable[None]) -> None:
        """Read as a member of a group of this kind. Raises Failure if there is one of another kind with its name: the
        brokers' errors do not say of which kind it is.
        """
        from ottla.client import Admin, KafkaError
        from ottla.client.options import AdminOptions
        from ottla.diagnosis.group_facts import OTHER_KIND, describe_if_there, kind_of

        try:
            await reading
        except KafkaError as refused:
            if refused.code not in OTHER_KIND:
                raise
            group_id = self._options["group_id"]
            try:
                async with Admin(servers, **options_of(AdminOptions, servers, LIMITS)) as admin:
                    group = await describe_if_there(admin, group_id)
            except KafkaError:  # the refusal has to do
                raise refused from None
            found = kind if group is None else kind_of(group)
            if found == kind:
                raise
            remedy = _MEMBERSHIPS[found].format(group_id)
            raise Failure(f"{group_id} is a {found} group: {remedy}") from None

    def _waiting_words(self) -> str:
        if self._start.offset is not None and self._start.offset >= 0:
            begin = f"reading {self._topic} from offset {self._start.offset} on"
        elif self._start.offset is not None:
            begin = f"reading {self._topic} from {-self._start.offset} before its end on"
        elif self._start.timestamp is not None:
            begin = f"reading {self._topic} from {show_time(self._start.timestamp)} on"
        elif self._options.get("auto_offset_reset") == "earliest":
            begin = f"reading {self._topic} from its beginning"
        else:
            return f"waiting for new records of {self._topic}; --from-beginning shows all; Ctrl-C ends"
        return f"{begin}, then waiting for more; Ctrl-C ends"

    async def run_in_group(self, servers: str) -> None:
        """Read the partitions that the group assigns. Commit what was printed from time to time, and at the end.

        SIGTERM ends it like Ctrl-C, so that the member leaves and the group need not wait for the end of its session.
        """
        import asyncio
        import signal

        from ottla.client import Consumer

        reading = asyncio.current_task()
        if reading is not None and sys.platform != "win32":
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reading.cancel)
        self._say(f"joining group {self._group_id} to read {self._topic}; Ctrl-C ends")
        async with Consumer(servers, **self._options) as consumer:
            consumer.subscribe([self._topic])
            ends: dict[TopicPartition, int] = {}
            assigned: list[TopicPartition] | None = None
            while True:
                self._wait_in_group(consumer)
                polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=self._left)
                if consumer.group_metadata().generation >= 0 and sorted(consumer.assignment()) != assigned:
                    assigned = sorted(consumer.assignment())
                    self._say(self._assigned_words(assigned))
                unwritten = dict(polled)
                try:
                    for partition, records in polled.items():
                        self._write(records)
                        del unwritten[partition]
                finally:  # the consumer commits its positions when it closes: only what was written may count
                    for partition, records in unwritten.items():
                        consumer.seek(partition, records[0].offset)
                if self._left is not None and self._left <= 0:
                    return
                if not polled and reader_is_gone():
                    raise BrokenPipeError
                if self._exit_at_end and await self._is_group_at_end(consumer, ends):
                    return

    def _assigned_words(self, assigned: list[TopicPartition]) -> str:
        if not assigned:
            return f"no partition is left for this member of {self._group_id}: waiting until another one leaves"
        names = ", ".join(str(one.partition) for one in assigned)
        return f"reading partition{'' if len(assigned) == 1 else 's'} {names}, then waiting for more"

    def _wait_in_group(self, consumer: Consumer) -> None:
        """Set what a message about waiting would name."""
        if consumer.group_metadata().generation < 0:
            self._wait_for(f"a place in the group {self._group_id}")
        elif not consumer.assignment():
            members = f"other members of {self._group_id}"
            self._wait_for(f"a partition of {self._topic}: {members} have all, or there is none", True)
        else:
            self._wait_for_records()

    def _wait_for_records(self) -> None:
        self._wait_for(f"records of {self._topic}, of which none has come", True)

    def _wait_for(self, what: str, is_ordinary: bool = False) -> None:
        if what != self._waits_for:
            self._waits_for = what
            self._waiting.on(what, is_ordinary=is_ordinary, is_said=is_ordinary and self._is_said)

    def _say(self, line: str) -> None:
        self._waiting.heard()  # else what was waited for until now may be said after the line
        self._is_said = self.on_waiting(line)

    @staticmethod
    async def _is_group_at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
        """Whether each assigned partition is read to the end that it had when it was assigned; False without any."""
        assigned = consumer.assignment()
        if consumer.group_metadata().generation < 0:
            return False
        ends.update(await consumer.end_offsets([one for one in assigned if one not in ends]))
        for partition in assigned:
            if not await consumer.has_reached(partition, ends[partition]):
                return False
        return bool(assigned)

    def _choose(self, known: list[int]) -> list[int]:
        require_known(self._topic, self._wanted, known)
        chosen = list(dict.fromkeys(self._wanted)) or known
        if self._start.offset is not None and self._start.offset >= 0 and len(chosen) > 1:
            many = counted(len(known), "partition")
            raise Failure(f"{self._topic} has {many}; say with --partition whose offset you mean")
        return chosen

    async def _place(self, consumer: Consumer, chosen: list[TopicPartition]) -> None:
        if self._start.offset is None:
            consumer.assign(chosen)
            if self._start.timestamp is not None:
                await consumer.seek_to_times(dict.fromkeys(chosen, self._start.timestamp))
            return
        first, end = await consumer.beginning_offsets(chosen), await consumer.end_offsets(chosen)
        consumer.assign(chosen)
        for one in chosen:
            wanted = self._start.offset
            if wanted < 0:
                wanted = max(first[one], end[one] + wanted)
            elif not first[one] <= wanted <= end[one]:
                raise Failure(
                    f"{one.topic}-{one.partition} has no offset {wanted}; "
                    f"it begins at {first[one]} and ends before {end[one]}"
                )
            consumer.seek(one, wanted)

    async def _read(self, consumer: Consumer, chosen: list[TopicPartition]) -> None:
        ends = await consumer.end_offsets(chosen) if self._exit_at_end else {}
        while not (self._exit_at_end and await self._is_at_end(consumer, ends)):
            polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=self._left)
            for partition, records in polled.items():
                end = ends.get(partition)
                self._write([one for one in records if end is None or one.offset < end])
            if self._left is not None and self._left <= 0:
                return
            if not polled and reader_is_gone():
                raise BrokenPipeError

    @staticmethod
    async def _is_at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
        for partition, end in ends.items():
            if not await consumer.has_reached(partition, end):
                return False
        return True

    def _write(self, records: Sequence[ConsumerRecord]) -> None:
        if not records:
            return
        lines = b"".join(map(self._line, records))
        self._out.write(lines)
        self._out.flush()
        if self._left is not None:
            self._left -= len(records)
        self._progress.add(len(records), len(lines))
        self._waiting.heard()


def _say_nothing(_: str) -> bool:
    return False
