"""The matrix of rights: what is answered to each scene in each of its situations, in a normal form.

`play` asks a `Stage`; scripts/interop/security-golden keeps what Apache Kafka answers in `GOLDEN_FILE`, and
tests/broker/security/acls/test_matrix.py asks Ottla. The normal form has error codes by name, what is listed and what
is left out, and authorized operations; it has no addresses, times, offsets, messages for people and values of
configurations. Lists are in the order of their text.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from kit.kafka_json import to_kafka_json
from kit.rights import cluster, groups, logins, topics, transactions
from kit.rights.scene import OF_READ, OPERATIONS, Ask, Scene, acl_creation

from ottla.protocol.api.create_acls import CreateAclsRequest
from ottla.protocol.api.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response

GOLDEN_FILE = Path(__file__).parents[2] / "broker" / "security" / "acls" / "kafka-4.1.0.json"
SCENES: list[Scene] = [*topics.SCENES, *groups.SCENES, *transactions.SCENES, *cluster.SCENES, *logins.SCENES]
PREPARED: list[Ask] = [
    topics.creating("mine", "other"),
    groups.committing("g"),
    groups.committing("h"),
    transactions.beginning("open"),
    transactions.beginning("ty"),
]
"""Sent by a super user before all scenes."""
ADMIN = "admin"
SHOWN = {
    "feature", "groupId", "groupState", "index", "key", "name", "operation", "partition", "partitionId",
    "partitionIndex", "patternType", "permissionType", "principal", "principalName", "resourceName", "resourceType",
    "statusDetail", "topic", "topicName", "transactionState", "transactionalId",
}  # fmt: skip
"""Fields that are kept as they are."""
ONLY_WHETHER = {"configs", "memberId", "members", "records"}
"""Lists, bytes and names that are kept as `some`, where they have any."""
LEFT_OUT = {"finalizedFeatures", "nodes", "supportedFeatures"}
"""Structs that have names, and say nothing of rights."""
NOT_ASKED = -(1 << 31)
"""What stands for authorized operations that were not asked for (KIP-430)."""
ACLS_IN_ONE_REQUEST = 200
Answers = dict[str, dict[str, Any]]
"""By the scene's name and the situation."""


class Stage(Protocol):
    """A broker with an authorizer."""

    def ask(self, user: str, request: Request, version: int) -> Response:
        """Send as this user, and wait for the answer."""

    def settle(self) -> None:
        """Wait until everything sees what was changed last."""


def user_name(scene: int, situation: int) -> str:
    """The user of a situation, by the places of both."""
    return f"u{scene}x{situation}"


def play(stage: Stage, prepared: list[Ask], scenes: list[Scene]) -> Answers:
    """Ask everything, in order."""
    for ask in prepared:
        _prepare(stage, ask, "", "")
    creations = [
        acl_creation(f"User:{user_name(place, position)}", line, situation)
        for place, scene in enumerate(scenes)
        for position, (situation, acls) in enumerate(scene.situations.items())
        for line in acls
    ]
    for first in range(0, len(creations), ACLS_IN_ONE_REQUEST):
        stage.ask(ADMIN, CreateAclsRequest(creations=creations[first : first + ACLS_IN_ONE_REQUEST]), 3)
    stage.settle()
    answers: Answers = {}
    for place, scene in enumerate(scenes):
        answers[scene.name] = {}
        for position, situation in enumerate(scene.situations):
            user = user_name(place, position)
            for ask in scene.before:
                _prepare(stage, ask, situation, user)
            if scene.before:
                stage.settle()
            symbols = _id_symbols(stage)
            names = {text: symbol for symbol, text in symbols.items()}
            if "@secret(" in json.dumps(scene.ask.fields):
                symbols |= {f"@secret({owner})": secret for owner, secret in secrets(stage).items()}
            request = scene.ask.message(symbols, situation, user)
            response = stage.ask(user, request, scene.ask.version)
            answers[scene.name][situation] = normal(to_kafka_json(response, scene.ask.version), names)
    return answers


def _prepare(stage: Stage, ask: Ask, situation: str, user: str) -> None:
    """Ask as the super user. Raises ValueError where that is refused."""
    symbols = _id_symbols(stage) if "@id(" in json.dumps(ask.fields) else {}
    response = stage.ask(ADMIN, ask.message(symbols, situation, user), ask.version)
    answer = json.dumps(normal(to_kafka_json(response, ask.version), {}))
    if (codes := {*re.findall(r'rrorCode": "(\w+)', answer)}) - {"NONE", "TOPIC_ALREADY_EXISTS"}:
        raise ValueError(f"{ask.api} {ask.filled(symbols, situation)}: {codes}")


def _id_symbols(stage: Stage) -> dict[str, str]:
    return {f"@id({name})": _text(topic_id) for name, topic_id in topic_ids(stage).items()}


def topic_ids(stage: Stage) -> dict[str, UUID]:
    """The ids of all topics."""
    response: Any = stage.ask(ADMIN, MetadataRequest(topics=None), 12)
    return {topic.name: topic.topic_id for topic in response.topics}


def secrets(stage: Stage) -> dict[str, str]:
    """The secrets of delegation tokens by their owners' names, as bytes are in JSON."""
    response: Any = stage.ask(ADMIN, DescribeDelegationTokenRequest(owners=None), 3)
    return {token.principal_name: base64.b64encode(token.hmac).decode() for token in response.tokens}


def normal(answer: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The normal form of an answer; `names` are the symbols of ids."""
    kept: dict[str, Any] = {}
    for key, value in answer.items():
        if key in LEFT_OUT:
            continue
        if key in ONLY_WHETHER:
            kept[key] = None if value is None else "some" if len(value) else "none"
        elif key.endswith("rrorCode"):
            kept[key] = ErrorCode.of(value).name
        elif key.endswith("uthorizedOperations"):
            kept[key] = _operations(value)
        elif key in ("topicId", "topicIds"):
            kept[key] = "zero" if value == _text(UUID(int=0)) else names.get(value, "of no topic")
        elif isinstance(value, dict):
            kept |= {key: inner} if (inner := normal(value, names)) else {}
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            items = [item for item in (normal(one, names) for one in value) if item]
            kept |= {key: sorted(items, key=lambda item: json.dumps(item, sort_keys=True))} if items else {}
        elif key in SHOWN:
            kept[key] = value
    return kept


def _operations(bits: int) -> str | list[str]:
    if bits == NOT_ASKED:
        return "not asked"
    return [name for number, name in enumerate(OPERATIONS, OF_READ) if bits >> number & 1]


def _text(topic_id: UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def save(answers: Answers, origin: str, path: Path = GOLDEN_FILE) -> None:
    """Write the fixture: one line for each situation."""
    lines = ["{", f' "origin": {json.dumps(origin)},', ' "prepared": [']
    lines.append(",\n".join(f"  {json.dumps(ask)}" for ask in PREPARED))
    lines += [" ],", ' "scenes": [']
    for scene in SCENES:
        lines.append(f'  {{"name": {json.dumps(scene.name)}, "ask": {json.dumps(scene.ask)},')
        lines.append(f'   "before": {json.dumps(scene.before)},')
        lines.append('   "situations": {')
        given = _with_references(answers[scene.name])
        rows = [
            f'    {json.dumps(situation)}: {{"acls": {json.dumps(acls)},\n'
            f'     "answer": {json.dumps(given[situation])}}}'
            for situation, acls in scene.situations.items()
        ]
        lines += [",\n".join(rows), "  }}" + ("" if scene is SCENES[-1] else ",")]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, " ]", "}"]) + "\n")


def _with_references(answers: dict[str, Any]) -> dict[str, Any]:
    """`as none` in place of an answer that is the same as that of the earlier situation `none`."""
    first: dict[str, str] = {}
    return {
        situation: answer if (same := first.setdefault(json.dumps(answer), situation)) == situation else f"as {same}"
        for situation, answer in answers.items()
    }


def load(path: Path = GOLDEN_FILE) -> tuple[list[Ask], list[Scene], Answers]:
    """What was prepared, the scenes and their answers, as `save` wrote them."""
    content = json.loads(path.read_text())
    scenes = [
        Scene(
            item["name"],
            Ask(*item["ask"]),
            {situation: row["acls"] for situation, row in item["situations"].items()},
            [Ask(*ask) for ask in item["before"]],
        )
        for item in content["scenes"]
    ]
    answers: Answers = {}
    for item in content["scenes"]:
        given = answers[item["name"]] = {}
        for situation, row in item["situations"].items():
            answer = row["answer"]
            given[situation] = given[answer.removeprefix("as ")] if isinstance(answer, str) else answer
    return [Ask(*ask) for ask in content["prepared"]], scenes, answers
