"""AlterUserScramCredentials and DescribeUserScramCredentials answer what Apache Kafka 4.1.0 answered to the same.

The answers were asked of a running Kafka (KRaft, one node), in this order; users in the order of their names. The one
difference: an empty salted password makes Kafka answer UNKNOWN_SERVER_ERROR (docs/deviations.md).
"""

from __future__ import annotations

from typing import Any

from kit.nodes import ask, start_node
from kit.sasl_connections import upsertion

from ottla.protocol.api.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion


def set_(name: str, mechanism: int = 1, iterations: int = 4096, salt: bytes = b"salt") -> Upsertion:
    return Upsertion(name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=b"s" * 32)


def remove(name: str, mechanism: int = 1) -> Deletion:
    return Deletion(name=name, mechanism=mechanism)


ALTERED: list[tuple[list[Deletion], list[Upsertion], list[tuple[str, int, str | None]]]] = [
    ([], [upsertion("alice", "pw")], [("alice", 0, None)]),
    ([], [upsertion("alice", "pw5", "SCRAM-SHA-512")], [("alice", 0, None)]),
    (
        [],
        [set_("few", 1, 4095), set_("many", 1, 16385), set_(""), set_("bad", 0), set_("bad3", 3), set_("ok")],
        [
            ("", 93, "Username must not be empty"),
            ("bad", 33, "Unknown SCRAM mechanism"),
            ("bad3", 33, "Unknown SCRAM mechanism"),
            ("few", 93, "Too few iterations"),
            ("many", 93, "Too many iterations"),
            ("ok", 0, None),
        ],
    ),
    (
        [remove("nobody"), remove("ok")],
        [],
        [("nobody", 91, "Attempt to delete a user credential that does not exist"), ("ok", 0, None)],
    ),
    (
        [remove("nobody"), remove("nobody")],
        [set_("nobody")],
        [("nobody", 91, "Attempt to delete a user credential that does not exist")],
    ),
    (
        [remove("alice")],
        [set_("alice", 2)],
        [("alice", 92, "A user credential cannot be altered twice in the same request")],
    ),
    (
        [],
        [set_("two"), set_("two", 2), set_("three")],
        [("three", 0, None), ("two", 92, "A user credential cannot be altered twice in the same request")],
    ),
    ([remove("")], [], [("", 93, "Username must not be empty")]),
    ([remove("x", 0)], [], [("x", 33, "Unknown SCRAM mechanism")]),
    ([], [set_("emptysalt", salt=b"")], [("emptysalt", 0, None)]),
]
DESCRIBED: list[tuple[list[str] | None, tuple[Any, ...]]] = [
    (
        None,
        (
            0,
            "",
            [
                ("alice", 0, "", [(1, 4096), (2, 4096)]),
                ("emptysalt", 0, "", [(1, 4096)]),
                ("three", 0, "", [(1, 4096)]),
            ],
        ),
    ),
    (
        [],
        (
            0,
            "",
            [
                ("alice", 0, "", [(1, 4096), (2, 4096)]),
                ("emptysalt", 0, "", [(1, 4096)]),
                ("three", 0, "", [(1, 4096)]),
            ],
        ),
    ),
    (["alice"], (0, "", [("alice", 0, "", [(1, 4096), (2, 4096)])])),
    (
        ["nobody", "alice", "alice"],
        (
            0,
            "",
            [
                (
                    "alice",
                    92,
                    "Cannot describe SCRAM credentials for the same user twice in a single request: alice",
                    [],
                ),
                ("nobody", 91, "Attempt to describe a user credential that does not exist: nobody", []),
            ],
        ),
    ),
]


def test_answers_are_those_of_kafka() -> None:
    node, _, _ = start_node()
    for deletions, upsertions, answer in ALTERED:
        altered: Any = ask(node, AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions), 0)
        assert sorted((one.user, one.error_code, one.error_message) for one in altered.results) == answer
    for users, described in DESCRIBED:
        names = None if users is None else [DescribeUserScramCredentialsRequest.UserName(name=user) for user in users]
        found: Any = ask(node, DescribeUserScramCredentialsRequest(users=names), 0)
        rows = sorted(
            (
                one.user,
                one.error_code,
                one.error_message,
                sorted((info.mechanism, info.iterations) for info in one.credential_infos),
            )
            for one in found.results
        )
        assert (found.error_code, found.error_message, rows) == described
    node.stop()
