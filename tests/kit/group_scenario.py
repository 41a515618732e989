"""One life of several consumer groups, request by request, to be lived on Apache Kafka and on Ottla and compared.

`play` asks a `Stage` and notes what was answered and written. scripts/interop/group-golden keeps what Apache Kafka does
in `tests/broker/groups/golden`, a file for a release; `plain` takes away what differs by run (ids, times, hashes).
Member ids are chosen so that Kafka's hash maps run through them in the order of the alphabet.

Epochs in the scenes are Ottla's, whose groups begin at epoch 1. Those of Kafka 4.4 begin at epoch 2, with an empty
target at epoch 1: `play` sends it epochs that are greater by one, and `plain` subtracts the difference. A group that
was a classic one first begins with its generation, in both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.api.delete_groups import DeleteGroupsRequest
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.join_group import JoinGroupRequest
from ottla.protocol.api.leave_group import LeaveGroupRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.api.sync_group import SyncGroupRequest
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from ottla.protocol.message import Request, Response, Struct, decode, encode
from ottla.protocol.stored.group import OffsetCommitKey, decode_group_record

GOLDEN = Path(__file__).parent.parent / "broker" / "groups" / "golden"
TOPICS = {"orders": 6, "payments": 3}
GROWN_ORDERS = 8
OTTLA_FIRST_EPOCH = 1
KAFKA_FIRST_EPOCH = 2
BORN_CLASSIC = frozenset({"migrated"})
"""Groups whose first epoch is a generation of the classic protocol."""
BORN_CONSUMER = frozenset({"classic-refused", "static-migrated"})
"""Groups whose generations of the classic protocol are epochs of the consumer protocol."""
RawRecord = tuple[bytes, bytes | None]


class Stage(Protocol):
    """A broker, and the log of its groups."""

    topic_ids: dict[str, UUID]
    first_epoch: int

    def ask(self, request: Request, version: int) -> Response:
        """Send and wait."""

    def new_records(self) -> list[RawRecord]:
        """What was written to `__consumer_offsets` since the last call."""

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions, and wait until groups can see them."""


@dataclass
class Step:
    """One request, its answer, and what was written before the next."""

    label: str
    version: int
    response: Response
    records: list[RawRecord] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "api": int(self.response.message_key),
            "version": self.version,
            "response": encode(self.response, self.version).hex(),
            "records": [[key.hex(), None if value is None else value.hex()] for key, value in self.records],
        }

    @classmethod
    def from_json(cls, item: dict[str, Any]) -> Step:
        response = decode(REGISTRY[ApiKey(item["api"])].response, bytes.fromhex(item["response"]), item["version"])
        records = [
            (bytes.fromhex(key), None if value is None else bytes.fromhex(value)) for key, value in item["records"]
        ]
        return cls(item["label"], item["version"], response, records)


class Play:
    """The scenes; each is a method, and each group is of one scene only."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.steps: list[Step] = []

    def ask(self, label: str, request: Request, version: int) -> Any:
        response = self.stage.ask(request, version)
        self.steps.append(Step(label, version, response, self.stage.new_records()))
        return response

    def beat(self, group: str, label: str, member_id: str, epoch: int, *, version: int = 1, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=self.epoch(group, epoch), **fields
        )
        return self.ask(f"{group}: {label}", request, version)

    def join(self, group: str, label: str, member_id: str, topics: list[str] | None, **fields: Any) -> Any:
        values = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], **fields}
        return self.beat(group, label, member_id, 0, subscribed_topic_names=topics, **values)

    def epoch(self, group: str, epoch: int) -> int:
        """An epoch of the scenes, as this broker counts."""
        is_counted = epoch > 0 and group not in BORN_CLASSIC
        return epoch + self.stage.first_epoch - OTTLA_FIRST_EPOCH if is_counted else epoch

    def generation(self, group: str, generation: int) -> int:
        """A generation of the scenes, as this broker counts."""
        return self.epoch(group, generation) if group in BORN_CONSUMER else generation

    def owns(self, topic: str, *partitions: int) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        return [
            ConsumerGroupHeartbeatRequest.TopicPartitions(
                topic_id=self.stage.topic_ids[topic], partitions=list(partitions)
            )
        ]

    def describe(self, group: str) -> None:
        self.ask(
            f"{group}: described",
            ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False),
            1,
        )

    def dynamic_members(self) -> None:
        group = "dynamic"
        self.join(group, "a joins and owns all", "a", ["orders"])
        self.join(group, "b joins and waits", "b", ["orders"])
        self.describe(group)
        self.beat(group, "a has to give up half", "a", 1)
        self.beat(group, "a still owns all", "a", 1, topic_partitions=self.owns("orders", 0, 1, 2, 3, 4, 5))
        self.beat(group, "b waits", "b", 2)
        self.beat(group, "a gave up half", "a", 1, topic_partitions=self.owns("orders", 0, 1, 2))
        self.beat(group, "b owns half", "b", 2)
        self.describe(group)
        self.beat(group, "b says it again with its former epoch", "b", 0 + 1, topic_partitions=[])
        self.beat(group, "nothing is new", "a", 2, topic_partitions=self.owns("orders", 0, 1, 2))
        self.beat(
            group,
            "a sends all of its fields",
            "a",
            2,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["orders"],
            topic_partitions=self.owns("orders", 0, 1, 2),
        )
        self.beat(group, "a subscribes to more", "a", 2, subscribed_topic_names=["orders", "payments"])
        self.beat(group, "a has a rack and an assignor", "a", 3, rack_id="r1", server_assignor="range")
        self.beat(group, "b leaves", "b", -1)
        self.beat(group, "a owns all again", "a", 3)
        self.beat(group, "a keeps up", "a", 4)
        self.beat(group, "a leaves", "a", -1)
        self.describe(group)
        self.ask(f"{group}: is deleted", DeleteGroupsRequest(groups_names=[group]), 2)

    def static_members(self) -> None:
        group = "static"
        self.join(group, "a joins as i1", "a", ["orders"], instance_id="i1")
        self.join(group, "b wants to be i1", "b", ["orders"], instance_id="i1")
        self.beat(group, "b says that it is i1", "b", 1, instance_id="i1")
        self.beat(group, "b says that it is i2", "b", 1, instance_id="i2")
        self.beat(group, "a leaves for a while", "a", -2, instance_id="i1")
        self.describe(group)
        self.join(group, "c comes back as i1", "c", ["orders"], instance_id="i1")
        self.beat(group, "a is gone", "a", 1)
        self.beat(group, "c leaves for good", "c", -1, instance_id="i1")

    def rejoins(self) -> None:
        group = "rejoined"
        self.join(group, "a joins", "a", ["orders"])
        self.join(group, "a joins again in its first epoch", "a", ["orders"])
        self.join(group, "b joins", "b", ["orders"])
        self.beat(group, "a has to give up half", "a", 1)
        self.join(group, "a joins again, and gave up all", "a", ["orders"])
        self.beat(group, "b owns half", "b", 2)
        self.join(group, "a joins again in a later epoch", "a", ["orders"])
        self.join(group, "b joins again with another subscription", "b", ["payments"])
        self.beat(group, "b goes on", "b", 3)
        self.beat(group, "a takes all", "a", 2)
        self.describe(group)

    def second_thoughts(self) -> None:
        group = "reconsidered"
        self.join(group, "a joins", "a", ["orders"])
        self.join(group, "b joins", "b", ["orders"])
        self.beat(group, "a has to give up half", "a", 1)
        self.join(group, "c joins", "c", ["orders"])
        self.beat(group, "a still owns all", "a", 1, topic_partitions=self.owns("orders", 0, 1, 2, 3, 4, 5))
        self.beat(
            group, "a gave up half, and has to give up more", "a", 1, topic_partitions=self.owns("orders", 0, 1, 2)
        )
        self.describe(group)
        self.beat(group, "b leaves", "b", -1)
        self.beat(group, "c leaves", "c", -1)
        self.beat(group, "a gave up more, and gets it back", "a", 1, topic_partitions=self.owns("orders", 0, 1))
        self.describe(group)

    def unsubscribes(self) -> None:
        group = "unsubscribed"
        self.join(group, "a joins", "a", ["orders", "payments"], server_assignor="range")
        self.join(group, "b joins", "b", ["orders", "payments"], server_assignor="range")
        self.beat(group, "a has to give up half", "a", 1)
        self.beat(group, "a leaves a topic, and has given up nothing", "a", 1, subscribed_topic_names=["orders"])
        self.describe(group)
        self.beat(group, "a gave up half, and the topic", "a", 1, topic_partitions=self.owns("orders", 0, 1, 2))
        self.beat(group, "b gets the topic", "b", 2)
        self.beat(group, "a has no topic", "a", 3, subscribed_topic_names=[])
        self.beat(group, "a gave up all", "a", 3, topic_partitions=[])
        self.describe(group)

    def more_members(self) -> None:
        group = "three"
        for name in "abc":
            self.join(group, f"{name} joins", name, ["orders"])
        self.beat(group, "a has to give up", "a", 1)
        self.beat(group, "a gave up", "a", 1, topic_partitions=self.owns("orders", 0, 1))
        self.beat(group, "b owns nothing yet", "b", 2)
        self.beat(group, "c owns nothing yet", "c", 3)
        self.describe(group)
        self.beat(group, "b comes on", "b", 3)
        self.beat(group, "a leaves", "a", -1)
        self.beat(group, "b takes more", "b", 3)
        self.beat(group, "c takes more", "c", 3)
        self.stage.grow("orders", GROWN_ORDERS)
        self.beat(group, "b sees the new partitions", "b", 4)
        self.beat(group, "c sees the new partitions", "c", 4)
        self.describe(group)
        self.ask(f"{group}: b and nobody leave by LeaveGroup", self._leave(group, "b", "nobody"), 5)
        self.ask(f"{group}: c leaves by an old LeaveGroup", LeaveGroupRequest(group_id=group, member_id="c"), 2)
        self.describe(group)

    def ranges(self) -> None:
        group = "ranges"
        self.join(group, "a joins", "a", ["orders", "payments"], server_assignor="range")
        self.join(group, "b joins", "b", ["orders", "payments"], server_assignor="range")
        self.join(group, "s joins as a static member", "s", ["payments"], instance_id="i")
        self.describe(group)

    def different_subscriptions(self) -> None:
        group = "mixed"
        self.join(group, "a subscribes to orders", "a", ["orders"])
        self.join(group, "b subscribes to both", "b", ["orders", "payments"])
        self.join(group, "c subscribes to payments", "c", ["payments"])
        self.describe(group)
        self.beat(group, "a leaves", "a", -1)
        self.beat(group, "c sees it", "c", 3)
        self.describe(group)

    def refusals(self) -> None:
        group = "refused"
        self.beat(group, "no such group", "a", 3)
        self.beat(group, "leaves no such group", "a", -1)
        self.join(group, "a has no id", "", ["orders"])
        self.join(group, "a has a blank id", "  ", ["orders"])
        self.join("", "no group id", "a", ["orders"])
        self.join(group, "blank instance id", "a", ["orders"], instance_id="")
        self.join(group, "blank rack", "a", ["orders"], rack_id=" ")
        self.join(group, "no rebalance timeout", "a", ["orders"], rebalance_timeout_ms=-1)
        self.join(group, "owns something", "a", ["orders"], topic_partitions=self.owns("orders", 0))
        self.join(group, "owns null", "a", ["orders"], topic_partitions=None)
        self.join(group, "subscribes to null", "a", None)
        self.join(group, "an unknown assignor", "a", ["orders"], server_assignor="sticky")
        self.join(group, "a broken expression", "a", None, subscribed_topic_regex="orders(")
        self.beat(group, "an epoch of its own", "a", -3)
        self.beat(group, "leaves for a while without an instance id", "a", -2)
        self.join(group, "a joins a topic that is not there", "a", ["nowhere"])
        self.beat(group, "a is ahead", "a", 9)
        self.beat(
            group, "a is behind", "a", 1 - 1, rebalance_timeout_ms=1, subscribed_topic_names=["x"], topic_partitions=[]
        )
        self.beat(group, "b is no member", "b", 1)
        self.beat(group, "b leaves and is no member", "b", -1)
        self.ask(f"{group}: is not empty", DeleteGroupsRequest(groups_names=[group]), 2)
        for label, member_id, epoch, version in (
            ("a commits", "a", 1, 9),
            ("a commits in an old version", "a", 1, 8),
            ("a commits with a stale epoch", "a", 7, 9),
            ("b commits", "b", 1, 9),
            ("somebody commits", "", -1, 9),
        ):
            self.ask(f"{group}: {label}", self._commit(group, member_id, self.epoch(group, epoch)), version)
        for label, member, member_epoch in (
            ("a", "a", 1),
            ("a with a stale epoch", "a", 7),
            ("b", "b", 1),
            ("anybody", None, -1),
        ):
            request = OffsetFetchRequest(
                groups=[
                    OffsetFetchRequest.OffsetFetchRequestGroup(
                        group_id=group, member_id=member, member_epoch=self.epoch(group, member_epoch), topics=None
                    )
                ]
            )
            self.ask(f"{group}: offsets for {label}", request, 9)

    @staticmethod
    def _commit(group: str, member_id: str, epoch: int) -> OffsetCommitRequest:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=0, committed_metadata=""
        )
        return OffsetCommitRequest(
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[partition])],
        )

    def migration(self) -> None:
        group = "migrated"
        member_id = self._classic_join(group, "the classic member gets its id", "", 9).member_id
        self._classic_join(group, "the classic member joins", member_id, 9)
        self._sync(group, "the classic member brings its assignment", member_id, 1, {"orders": list(range(6))})
        self.join(group, "n upgrades the group", "n", ["orders"])
        self.describe(group)
        self._classic_beat(group, "the classic member has to join", member_id, 1)
        self._classic_join(group, "the classic member owns all, and is to give up half", member_id, 9, owned=range(6))
        self._sync(group, "the classic member fetches its half", member_id, 1, {})
        self._classic_beat(group, "the classic member is to come again when it has given up", member_id, 1)
        self._classic_join(group, "the classic member gave up half", member_id, 9, owned=range(3))
        self._sync(group, "the classic member keeps its half", member_id, 2, {})
        self.beat(group, "n owns its half", "n", 2)
        self._classic_beat(group, "the classic member is in order", member_id, 2)
        self._classic_beat(group, "an old generation", member_id, 1)
        self._classic_beat(group, "n does not speak the classic protocol", "n", 2)
        self._classic_join(group, "another protocol", member_id, 9, name="sticky")
        self.describe(group)
        self.beat(group, "n leaves, which downgrades the group", "n", -1)
        self._classic_beat(group, "the classic member has to join the classic group", member_id, 2)
        self.ask(f"{group}: the classic member leaves", self._leave(group, member_id), 5)

    def emptied(self) -> None:
        group = "emptied"
        member_id = self._classic_join(group, "a classic member joins", "", 3).member_id
        self._sync(group, "it brings its assignment", member_id, 1, {"orders": list(range(6))})
        self.ask(f"{group}: it leaves", self._leave(group, member_id), 5)
        self.join(group, "n comes to an empty classic group", "n", ["orders"])
        self.beat(group, "n leaves again", "n", -1)
        self.describe(group)
        self._classic_join(group, "a classic member comes to an empty consumer group", "", 3)

    def classic_refusals(self) -> None:
        group = "classic-refused"
        self.join(group, "n joins", "n", ["orders"])
        self._classic_join(group, "no id yet", "", 9)
        self._classic_join(group, "an id of its own", "own", 9)
        self._classic_join(group, "no protocols", "other", 9, name=None)
        self._classic_join(group, "no subscription", "other", 9, metadata=b"")
        self._classic_join(group, "a short session", "other", 9, session_timeout_ms=1)
        self._classic_join(group, "an unknown instance", "other", 9, group_instance_id="i")
        self._sync(group, "another generation", "own", 7, {})
        self._sync(group, "another protocol", "own", 2, {}, name="sticky")
        self._sync(group, "nobody", "nobody", 2, {})
        self._sync(group, "n, who speaks the other protocol", "n", 1, {})
        self.ask(f"{group}: own commits", self._commit(group, "own", self.epoch(group, 2)), 8)
        former = self._commit(group, "own", self.epoch(group, 1))
        self.ask(f"{group}: own commits in another generation", former, 8)
        self._classic_beat(group, "nobody beats", "nobody", 1)
        self.ask(f"{group}: own leaves", self._leave(group, "own"), 5)

    def static_migration(self) -> None:
        group = "static-migrated"
        self.join(group, "n joins as i", "n", ["orders"], instance_id="i")
        joined = self._classic_join(group, "i comes back in the classic protocol", "", 9, group_instance_id="i")
        self._sync(group, "it fetches what it had", joined.member_id, 1, {}, group_instance_id="i")
        self._classic_beat(group, "nothing has to be rebalanced", joined.member_id, 1)
        self.join(group, "i comes back in the consumer protocol", "m", ["orders"], instance_id="i")
        self.describe(group)

    @staticmethod
    def _leave(group: str, *member_ids: str) -> LeaveGroupRequest:
        members = [LeaveGroupRequest.MemberIdentity(member_id=member_id) for member_id in member_ids]
        return LeaveGroupRequest(group_id=group, members=members)

    def _classic_join(
        self,
        group: str,
        label: str,
        member_id: str,
        version: int,
        *,
        name: str | None = "range",
        owned: range | None = None,
        metadata: bytes | None = None,
        **fields: Any,
    ) -> Any:
        owned_partitions = [ConsumerProtocolSubscription.TopicPartition(topic="orders", partitions=list(owned or ()))]
        subscription = ConsumerProtocolSubscription(
            topics=["orders"], owned_partitions=owned_partitions if owned else [], generation_id=1
        )
        if metadata is None:
            metadata = encode_subscription(subscription, 2)
        values: dict[str, Any] = {"session_timeout_ms": 45_000, "rebalance_timeout_ms": 60_000, **fields}
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[] if name is None else [JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)],
            **values,
        )
        return self.ask(f"{group}: {label}", request, version)

    def _sync(
        self,
        group: str,
        label: str,
        member_id: str,
        generation: int,
        assignment: dict[str, list[int]],
        *,
        name: str = "range",
        **fields: Any,
    ) -> None:
        assigned = ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in assignment.items()
            ]
        )
        mine = SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=member_id, assignment=encode_assignment(assigned, 2)
        )
        request = SyncGroupRequest(
            group_id=group,
            generation_id=self.generation(group, generation),
            member_id=member_id,
            protocol_type="consumer",
            protocol_name=name,
            assignments=[mine] if assignment else [],
            **fields,
        )
        self.ask(f"{group}: {label}", request, 5)

    def _classic_beat(self, group: str, label: str, member_id: str, generation: int) -> None:
        request = HeartbeatRequest(
            group_id=group, generation_id=self.generation(group, generation), member_id=member_id
        )
        self.ask(f"{group}: {label}", request, 4)


def play(stage: Stage) -> list[Step]:
    """All scenes."""
    script = Play(stage)
    script.dynamic_members()
    script.static_members()
    script.rejoins()
    script.second_thoughts()
    script.unsubscribes()
    script.refusals()
    script.migration()
    script.emptied()
    script.classic_refusals()
    script.static_migration()
    script.different_subscriptions()
    script.ranges()
    script.more_members()  # last: it grows a topic
    return script.steps


def plain(steps: list[Step], topic_ids: dict[str, UUID], *, first_epoch: int = OTTLA_FIRST_EPOCH) -> Any:
    """Answers and records without what differs from run to run; labels stay, so that a difference says where.

    `first_epoch` is that of the broker; the epochs in the result are Ottla's.
    """
    names: dict[Any, str] = {topic_id: name for name, topic_id in topic_ids.items()}
    reported: list[Any] = []
    for step in steps:
        given = getattr(step.response, "member_id", "")
        if len(given or "") > 2:
            names.setdefault(given, "<a given id>")
        records = [decode_group_record(key, value) for key, value in step.records]
        group = step.label.partition(":")[0]
        later = 0 if group in BORN_CLASSIC else first_epoch - OTTLA_FIRST_EPOCH
        epochs = dict.fromkeys(EPOCHS, later) | {name: later for name in GENERATIONS if group in BORN_CONSUMER}
        reported.append(
            (
                step.label,
                _plain(step.response, names, epochs),
                sorted(
                    (
                        (
                            type(key).__name__,
                            _plain(key, names, epochs),
                            None if value is None else _plain(value, names, epochs),
                        )
                        for key, value in records
                        if not isinstance(key, OffsetCommitKey)
                    ),
                    key=json.dumps,
                ),
            )
        )
    return reported


SKIPPED = {
    "error_message",
    "throttle_time_ms",
    "metadata_hash",
    "current_state_timestamp",
    "client_id",
    "client_host",
    "timestamp",
    "version",
    "commit_timestamp",
    "authorized_operations",
    "assignment_timestamp",
}
EPOCHS = ("epoch", "member_epoch", "previous_member_epoch", "group_epoch", "assignment_epoch", "assignment_epochs")
GENERATIONS = ("generation", "generation_id")


def _plain(value: Any, names: dict[Any, str], epochs: dict[str, int]) -> Any:
    if isinstance(value, Struct):
        fields = {name: getattr(value, name) for name in value.__slots__ if name not in SKIPPED}
        for name in fields.keys() & epochs.keys():
            fields[name] = _earlier(fields[name], epochs[name])
        for name in ("assignment", "member_assignment"):
            if isinstance(fields.get(name), bytes):
                fields[name] = decode_assignment(fields[name])
        return {name: _plain(item, names, epochs) for name, item in fields.items()}
    if isinstance(value, list):
        return sorted((_plain(item, names, epochs) for item in value), key=json.dumps)
    if isinstance(value, bytes):
        return value.hex()
    return names.get(value, str(value) if isinstance(value, UUID) else value)


def _earlier(epoch: Any, later: int) -> Any:
    """An epoch, or a list of epochs, as Ottla counts. 0 and below are not epochs of a group."""
    if isinstance(epoch, list):
        return [_earlier(one, later) for one in epoch]
    return epoch - later if isinstance(epoch, int) and epoch > 0 else epoch


def save(steps: list[Step], topic_ids: dict[str, UUID], version: str) -> None:
    """Write the golden file of a release of Kafka."""
    content = {
        "origin": f"Apache Kafka {version} (kafka_2.13-{version} from Maven Central), by scripts/interop/group-golden",
        "topics": {name: str(topic_id) for name, topic_id in topic_ids.items()},
        "steps": [step.to_json() for step in steps],
    }
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / f"kafka-{version}.json").write_text(json.dumps(content, indent=1) + "\n")


def load(version: str) -> tuple[list[Step], dict[str, UUID]]:
    """Read the golden file of a release of Kafka."""
    content = json.loads((GOLDEN / f"kafka-{version}.json").read_text())
    return [Step.from_json(item) for item in content["steps"]], {
        name: UUID(text) for name, text in content["topics"].items()
    }
