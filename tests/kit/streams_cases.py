"""Cases of the pure parts of streams groups, as JSON: topologies with topics, members with tasks, and their steps.

`scripts/interop/streams-golden` puts random ones to Apache Kafka's own classes and keeps the answers; the tests put the
same ones to Ottla. `answer` is Ottla's answer to a case, in the form of the Java program StreamsTasks.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from kit.consumer_groups import FakeTopics
from kit.kafka_json import from_kafka_json
from kit.streams_steps import answer_to_step, step

from ottla.broker.groups.streams.configured_topology import (
    ConfiguredSubtopology,
    ConfiguredTopology,
    InternalTopic,
    configure,
)
from ottla.broker.groups.streams.sticky_assignor import AssignorMember, assign_sticky
from ottla.broker.groups.streams.tasks import Tasks, in_order
from ottla.broker.groups.streams.topology import Topology
from ottla.protocol.errors import KafkaError
from ottla.protocol.stored.group import StreamsGroupTopologyValue

GOLDEN_FILE = Path(__file__).parent.parent / "broker" / "groups" / "streams" / "golden" / "kafka-4.4.0-tasks.jsonl"
SEED = "streams groups"
"""Of the cases in the file."""
TOPOLOGIES = 150
LIVES = 24
STEPS = 4
MEMBERS = 200
_CHANGELOG = InternalTopic("log", 1, 0, {})
Case = dict[str, Any]


class Golden(NamedTuple):
    """A case and Kafka's answer."""

    case: Case
    answer: Case


def golden() -> list[Golden]:
    """All that the file holds."""
    lines = GOLDEN_FILE.read_text(encoding="utf-8").splitlines()
    return [Golden(**json.loads(line)) for line in lines]


def answer(case: Case) -> Case:
    """Ottla's answer."""
    if "target" in case:
        return answer_to_step(case)
    return _configured(case) if "topology" in case else _assigned(case)


def cases(random: Random) -> list[Case]:
    """Random topologies, lives of groups in which members and their tasks change, and single steps of members."""
    lives = [_life(random) for _ in range(LIVES)]
    topologies = [_topology(random) for _ in range(TOPOLOGIES)]
    return topologies + [case for life in lives for case in life] + [step(random) for _ in range(MEMBERS)]


def _configured(case: Case) -> Case:
    topology = Topology(from_kafka_json(StreamsGroupTopologyValue, 0, case["topology"]))
    try:
        configured = configure(topology, FakeTopics(case["topics"]))
    except KafkaError as error:
        return {"error": error.code.name, "message": error.message}
    return _shown(configured)


def _shown(configured: ConfiguredTopology) -> Case:
    found: Case = {
        "create": [
            [
                topic.name,
                topic.partition_count,
                topic.replication_factor or -1,
                [list(one) for one in topic.configs.items()],
            ]
            for topic in configured.topics_to_create
        ]
    }
    if configured.problem is not None:
        found |= {"status": configured.problem.status, "detail": configured.problem.detail}
    if configured.subtopologies is not None:
        found["subtopologies"] = {
            subtopology_id: {
                "tasks": subtopology.task_count,
                "sources": list(subtopology.source_topics),
                "sinks": list(subtopology.repartition_sink_topics),
                "repartition": {topic.name: topic.partition_count for topic in subtopology.repartition_source_topics},
                "changelog": {topic.name: topic.partition_count for topic in subtopology.state_changelog_topics},
            }
            for subtopology_id, subtopology in configured.subtopologies.items()
        }
    return found


def subtopologies_of(case: Case) -> dict[str, ConfiguredSubtopology]:
    """The subtopologies of a case for the assignor."""
    return {
        subtopology_id: ConfiguredSubtopology(
            one["tasks"], ("source",), (), (), (_CHANGELOG,) if one["stateful"] else ()
        )
        for subtopology_id, one in sorted(case["subtopologies"].items())
    }


def members_of(case: Case) -> dict[str, AssignorMember]:
    """The members of a case for the assignor."""
    return {
        member_id: AssignorMember(
            member["process"],
            _tasks(member["active"]),
            _tasks(member["standby"]),
            {
                subtopology_id: {int(partition): offset for partition, offset in offsets.items()}
                for subtopology_id, offsets in member["offsets"].items()
            },
        )
        for member_id, member in case["members"].items()
    }


def _assigned(case: Case) -> Case:
    target = assign_sticky(members_of(case), subtopologies_of(case), case["standby_replicas"])
    return {
        member_id: {"active": dict(in_order(tasks.active)), "standby": dict(in_order(tasks.standby))}
        for member_id, tasks in target.items()
    }


def _tasks(listed: dict[str, list[int]]) -> Tasks:
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in listed.items()}


def _topology(random: Random) -> Case:
    """A topology whose subtopologies read and write a few topics, and topics that mostly suit it."""
    size = random.choice((1, 2, 3, 5, 14))
    topics = {f"in-{number}": random.choice((1, 2, 3, 4, 4, 4)) for number in range(random.randint(1, 4))}
    repartition = [f"app-part-{number}-repartition" for number in range(random.choice((0, 1, 2, 3, 16)))]
    fixed = {name: random.choice((0, 0, 0, 3, 4)) for name in repartition}
    subtopologies: list[Case] = []
    changelogs: list[str] = []
    for number in range(size):
        sources = random.sample(sorted(topics), random.randint(0 if repartition else 1, len(topics)))
        if random.random() < 0.02:
            sources.append("absent")
        reads = random.sample(repartition, min(len(repartition), random.choice((0, 1, 1, 2))))
        stores = [f"app-store-{number}-{store}-changelog" for store in range(random.choice((0, 1, 2)))]
        changelogs += stores
        both = [("sourceTopics", index) for index in range(len(sources))]
        both += [("repartitionSourceTopics", index) for index in range(len(reads))]
        group: Case = {"sourceTopics": [], "sourceTopicRegex": [], "repartitionSourceTopics": []}
        for kind, index in random.sample(both, random.randint(0, len(both))):
            group[kind].append(index)
        subtopologies.append(
            {
                "subtopologyId": str(number),
                "sourceTopics": sources,
                "sourceTopicRegex": [],
                "stateChangelogTopics": [_internal(random, name, 0) for name in stores],
                "repartitionSinkTopics": random.sample(repartition, min(len(repartition), random.choice((0, 1, 2, 4)))),
                "repartitionSourceTopics": [_internal(random, name, fixed[name]) for name in reads],
                "copartitionGroups": [group] if random.random() < 0.4 else [],
            }
        )
    case: Case = {"topology": {"epoch": 1, "subtopologies": subtopologies}, "topics": topics}
    _create_some(random, case)
    return case


def _create_some(random: Random, case: Case) -> None:
    """Let some of the internal topics exist, now and then with wrong numbers of partitions."""
    wanted = answer(case)
    existing = {name: count for name, count, *_ in wanted.get("create", ()) if random.random() < 0.4}
    for name in existing:
        if random.random() < 0.08:
            existing[name] += 1
    case["topics"] |= existing


def _internal(random: Random, name: str, partitions: int) -> Case:
    configs = {"cleanup.policy": "compact", "retention.ms": "-1", "segment.bytes": "52428800"}
    keys = random.sample(sorted(configs), random.randint(0, 3))
    return {
        "name": name,
        "partitions": partitions,
        "replicationFactor": random.choice((0, 1)),
        "topicConfigs": [{"key": key, "value": configs[key]} for key in keys],
    }


def _life(random: Random) -> list[Case]:
    """A group that begins without tasks; then members come and go, and have most of what they were given."""
    subtopologies = {
        str(number): {"tasks": random.choice((1, 2, 3, 5, 8, 16)), "stateful": random.random() < 0.6}
        for number in range(random.choice((1, 2, 3, 12)))
    }
    replicas = random.choice((0, 1, 2))
    processes = [_id(random) for _ in range(random.choice((1, 2, 3, 6, 14)))]
    members: dict[str, Case] = {}
    life: list[Case] = []
    for _ in range(STEPS):
        for member_id in [one for one in members if random.random() < 0.25]:
            del members[member_id]
        for _ in range(random.randint(0 if members else 1, len(processes) + 2)):
            empty: Case = {"active": {}, "standby": {}, "offsets": _offsets(random, subtopologies)}
            members[_id(random)] = {"process": random.choice(processes), **empty}
        case = {"subtopologies": subtopologies, "members": dict(members), "standby_replicas": replicas}
        life.append(json.loads(json.dumps(case)))
        targets = answer(case)
        for member_id, member in members.items():  # the order of the answer is the assignor's to choose
            target = targets[member_id]
            tasks = {role: _most(random, target[role]) for role in ("active", "standby")}
            members[member_id] = {**member, **tasks, "offsets": _offsets(random, subtopologies)}
    return life


def _most(random: Random, tasks: dict[str, list[int]]) -> dict[str, list[int]]:
    kept = {key: [one for one in partitions if random.random() < 0.9] for key, partitions in tasks.items()}
    return {key: partitions for key, partitions in kept.items() if partitions}


def _offsets(random: Random, subtopologies: Case) -> Case:
    if random.random() < 0.7:
        return {}
    return {
        subtopology_id: {str(random.randrange(one["tasks"])): random.randrange(5)}
        for subtopology_id, one in subtopologies.items()
        if random.random() < 0.5
    }


def _id(random: Random) -> str:
    return f"{random.getrandbits(32):08x}"
