"""SCRAM credentials: the rules of Kafka's ScramControlManager, and what a restart finds."""

from __future__ import annotations

import pytest
from kit.nodes import ask, ask_for, start_node
from kit.sasl_connections import upsertion

from ottla.broker.metadata import scram_plans
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.image_records import records_of
from ottla.broker.metadata.scram_plans import Deletion, Upsertion, by_user, plan_scram
from ottla.protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from ottla.protocol.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.stored.metadata import UserScramCredentialRecord

SHA_256, SHA_512 = 1, 2
SECRET = b"s" * 32


def setting(name: str, mechanism: int = SHA_256, iterations: int = 4096, salt: bytes = b"salt") -> Upsertion:
    return Upsertion(name, mechanism, iterations, salt, SECRET)


def image_of(*upsertions: Upsertion) -> MetadataImage:
    image = MetadataImage()
    for record in plan_scram(image, by_user(upsertions)).records:
        image.replay(record)
    return image


def codes(image: MetadataImage, deletions: list[Deletion], upsertions: list[Upsertion]) -> dict[str, ErrorCode]:
    plan = plan_scram(image, by_user([*deletions, *upsertions]))
    assert len(plan.records) == sum(result.error_code == 0 for result in plan.results)
    return {result.user: result.error_code for result in plan.results}


def test_a_credential_is_kept_as_keys_and_not_as_what_was_sent() -> None:
    """The keys of RFC 7677's example: user, pencil."""
    import base64

    from ottla.scram import keys_of, salted_password

    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = salted_password("SCRAM-SHA-256", "pencil", salt, 4096)
    (record,) = plan_scram(MetadataImage(), by_user([Upsertion("user", SHA_256, 4096, salt, salted)])).records
    assert isinstance(record, UserScramCredentialRecord)
    assert (record.stored_key, record.server_key) == keys_of("SCRAM-SHA-256", salted)
    assert base64.b64encode(record.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(record.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    assert salted not in (record.stored_key, record.server_key)
    assert "stored_key" not in repr(record)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (setting("a", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (setting("a", iterations=4096), ErrorCode.NONE),
        (setting("a", iterations=16384), ErrorCode.NONE),
        (setting("a", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (setting("a", iterations=1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (setting("a", iterations=10**9), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (setting("a", iterations=-1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (setting(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (setting("a", mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (setting("a", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (setting("a", salt=b"s" * 1024), ErrorCode.NONE),
        (setting("a", salt=b"s" * 1025), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (setting("n" * 1024), ErrorCode.NONE),
        (setting("n" * 1025), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (setting("a")._replace(salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_what_makes_a_credential_acceptable(request_: Upsertion, code: ErrorCode) -> None:
    assert codes(MetadataImage(), [], [request_]) == {request_.name: code}


def test_removing_needs_the_credential_of_that_mechanism() -> None:
    image = image_of(setting("a"))
    assert codes(image, [Deletion("a", SHA_256)], []) == {"a": ErrorCode.NONE}
    assert codes(image, [Deletion("a", SHA_512)], []) == {"a": ErrorCode.RESOURCE_NOT_FOUND}
    assert codes(image, [Deletion("b", SHA_256)], []) == {"b": ErrorCode.RESOURCE_NOT_FOUND}
    assert codes(image, [Deletion("", SHA_256)], []) == {"": ErrorCode.UNACCEPTABLE_CREDENTIAL}


def test_a_user_that_is_named_twice_is_refused_whatever_the_mechanisms_and_others_pass() -> None:
    image = image_of(setting("a"), setting("b"))
    twice = ErrorCode.DUPLICATE_RESOURCE
    assert codes(image, [], [setting("a"), setting("a", SHA_512), setting("c")]) == {"a": twice, "c": ErrorCode.NONE}
    assert codes(image, [Deletion("a", SHA_256)], [setting("a", SHA_512)]) == {"a": twice}
    assert codes(image, [Deletion("a", SHA_256)] * 3, []) == {"a": twice}
    # The first thing that is wrong is what is said, as in Kafka.
    assert codes(image, [Deletion("z", SHA_256)] * 2, []) == {"z": ErrorCode.RESOURCE_NOT_FOUND}


def test_the_number_of_credentials_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scram_plans, "MAX_SCRAM_CREDENTIALS", 2)
    image = image_of(setting("a"))
    assert codes(image, [], [setting("b"), setting("c"), setting("a")]) == {
        "b": ErrorCode.NONE,
        "c": ErrorCode.POLICY_VIOLATION,
        "a": ErrorCode.NONE,
    }


def test_a_snapshot_has_the_credentials() -> None:
    image = image_of(setting("b"))
    for record in plan_scram(image, by_user([setting("a", SHA_512)])).records:
        image.replay(record)
    again = MetadataImage()
    for record in records_of(image):
        again.replay(record)
    assert again.scram_credentials == image.scram_credentials
    assert list(again.scram_credentials) == [(SHA_256, "b"), (SHA_512, "a")]
    for record in plan_scram(image, by_user([Deletion("b", SHA_256)])).records:
        image.replay(record)
    assert list(image.scram_credentials) == [(SHA_512, "a")]


def test_credentials_are_described_without_secrets_and_survive_a_restart() -> None:
    node, files, clock = start_node()
    asked = AlterUserScramCredentialsRequest(
        deletions=[], upsertions=[upsertion("a", "x"), upsertion("b", "y", "SCRAM-SHA-512", 8192)]
    )
    answer = ask_for(AlterUserScramCredentialsResponse, node, asked, 0)
    assert [(one.user, one.error_code, one.error_message) for one in answer.results] == [("a", 0, None), ("b", 0, None)]
    node.stop()
    node, _, _ = start_node(files, clock)

    def described(*users: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
        wanted = [DescribeUserScramCredentialsRequest.UserName(name=user) for user in users]
        found = ask_for(
            DescribeUserScramCredentialsResponse, node, DescribeUserScramCredentialsRequest(users=wanted), 0
        )
        assert found.error_code == 0
        return [
            (one.user, one.error_code, [(info.mechanism, info.iterations) for info in one.credential_infos])
            for one in found.results
        ]

    everybody = [("a", 0, [(1, 4096)]), ("b", 0, [(2, 8192)])]
    assert described() == everybody
    everything = ask(node, DescribeUserScramCredentialsRequest(users=None), 0)
    assert isinstance(everything, DescribeUserScramCredentialsResponse)
    assert len(everything.results) == 2
    assert described("b") == everybody[1:]
    assert described("c", "a", "a") == [
        ("c", ErrorCode.RESOURCE_NOT_FOUND, []),
        ("a", ErrorCode.DUPLICATE_RESOURCE, []),
    ]
    node.stop()
