"""A scene of the matrix of rights: one request, sent by users who differ in nothing but their ACLs.

A situation is a name and the ACLs of its user, as lines: `WRITE topic mine`, `deny WRITE topic mine`, `DESCRIBE
cluster`, `READ topic prefixed:mi`, `READ topic mine from 192.0.2.1`; `*` is every name. `{s}` in a field, an ACL or a
preparation is the name of the situation, so that what one user deletes is not what the next one asks for; `{u}` in a
field is the name of the user. Fields are those of Kafka's JSON (`kit/kafka_json.py`), zero where they are left out;
`@id(mine)` is the id of that topic, and `@secret(alice)` the secret of her delegation token, whatever they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kit.kafka_json import from_kafka_json

from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.create_acls import CreateAclsRequest
from ottla.protocol.message import Request

Json = dict[str, Any]

TYPES = {"topic": 2, "group": 3, "cluster": 4, "transactional": 5, "token": 6, "user": 7}
OPERATIONS = (
    "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS",
)  # fmt: skip
OF_READ, ALL = 3, 2
"""The number of the first operation in Kafka's `AclOperation`, and of that which stands for all of them."""
DENY, ALLOW = 2, 3
LITERAL, PREFIXED = 3, 4
CLUSTER_NAME = "kafka-cluster"


class Ask(NamedTuple):
    """A request as the fixture has it."""

    api: str
    version: int
    fields: Json

    def message(self, symbols: Mapping[str, str], situation: str = "", user: str = "") -> Request:
        """The request with its names filled in."""
        message: Request = from_kafka_json(
            REGISTRY[ApiKey[self.api]].request, self.version, self.filled(symbols, situation, user)
        )
        return message

    def filled(self, symbols: Mapping[str, str], situation: str, user: str = "") -> Json:
        """The fields with their names filled in."""
        filled: Json = _fill(self.fields, symbols, {"{s}": situation, "{u}": user})
        return filled


class Scene(NamedTuple):
    """A request, who sends it, and what is there before."""

    name: str
    ask: Ask
    situations: dict[str, list[str]]
    before: list[Ask]
    """Sent by a super user before each situation."""


def scene(
    api: str,
    version: int,
    fields: Json,
    *rights: str,
    what: str = "",
    before: tuple[Ask, ...] = (),
    also: Mapping[str, tuple[str, ...]] | None = None,
) -> Scene:
    """A scene of the usual situations: no right, `rights` in place of which there is only DESCRIBE, `rights`, and
    `rights` with the first of them denied. `also` has further ones.
    """
    situations: dict[str, list[str]] = {"none": []}
    if rights:
        resources = [right.split(" ", 1)[1] for right in rights]
        situations["described"] = [f"DESCRIBE {resource}" for resource in dict.fromkeys(resources)]
        situations["right"] = list(rights)
        situations["deny"] = [*rights, f"deny {rights[0]}"]
    situations |= {name: list(acls) for name, acls in (also or {}).items()}
    name = f"{api.title().replace('_', '')} v{version}" + (f", {what}" if what else "")
    return Scene(name, Ask(api, version, fields), situations, list(before))


def acl_creation(principal: str, line: str, situation: str) -> CreateAclsRequest.AclCreation:
    """The ACL that a line stands for."""
    line, _, host = line.replace("{s}", situation).partition(" from ")
    words = line.split(" ")
    permission = DENY if words[0] == "deny" else ALLOW
    operation, kind, *names = words[1:] if permission == DENY else words
    name = names[0] if names else CLUSTER_NAME
    prefix = name.removeprefix("prefixed:")
    return CreateAclsRequest.AclCreation(
        resource_type=TYPES[kind],
        resource_name=prefix,
        resource_pattern_type=LITERAL if prefix == name else PREFIXED,
        principal=principal,
        host=host or "*",
        operation=ALL if operation == "ALL" else OPERATIONS.index(operation) + OF_READ,
        permission_type=permission,
    )


def _fill(value: Any, symbols: Mapping[str, str], words: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _fill(item, symbols, words) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, symbols, words) for item in value]
    if isinstance(value, str):
        for word, text in words.items():
            value = value.replace(word, text)
        return symbols[value] if value.startswith("@") else value
    return value
