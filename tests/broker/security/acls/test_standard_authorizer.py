"""The authorizer: Kafka's rules of ACLs, each by an example, and all together against a naive model."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.naive_rights import naively_allowed, naively_allowed_somewhere

from ottla.broker.metadata.acls import Acl, acl_record
from ottla.broker.peer import Peer
from ottla.broker.principal import Principal
from ottla.broker.security.acls import standard_authorizer
from ottla.broker.security.acls.standard_authorizer import StandardAuthorizer
from ottla.protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.stored.metadata import RemoveAccessControlEntryRecord

O, T, PT, P = AclOperation, ResourceType, PatternType, PermissionType  # noqa: E741  # short for tables
ALICE = Peer(host="10.0.0.1", principal=Principal("User", "alice"))


def acl(
    operation: int,
    name: str = "orders",
    *,
    kind: int = T.TOPIC,
    pattern: int = PT.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    permission: int = P.ALLOW,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def authorizer(*acls: Acl, super_users: Sequence[str] = (), open_without_acls: bool = False) -> StandardAuthorizer:
    made = StandardAuthorizer(super_users=super_users, allow_without_acls=open_without_acls)
    made.load({UUID(int=number): one for number, one in enumerate(acls)})
    return made


def reads(asked: StandardAuthorizer, name: str = "orders", peer: Peer = ALICE) -> bool:
    return asked.is_allowed(peer, O.READ, T.TOPIC, name)


def test_who_has_no_acl_may_nothing_unless_resources_without_acls_are_open_to_all() -> None:
    assert not reads(authorizer())
    assert reads(authorizer(open_without_acls=True))
    others = acl(O.DESCRIBE, principal="User:bob")
    assert not reads(authorizer(others, open_without_acls=True))
    assert reads(authorizer(others, open_without_acls=True), "payments")


@pytest.mark.parametrize("pattern", [("*", PT.LITERAL), ("orders", PT.LITERAL), ("ord", PT.PREFIXED)])
def test_an_acl_of_somebody_else_closes_what_its_pattern_stands_for(pattern: tuple[str, int]) -> None:
    name, kind = pattern
    made = authorizer(acl(O.READ, name, pattern=kind, principal="User:bob"), open_without_acls=True)
    assert not reads(made)


@pytest.mark.parametrize(
    ("name", "pattern", "matches"),
    [
        ("orders", PT.LITERAL, True),
        ("order", PT.LITERAL, False),
        ("ordersX", PT.LITERAL, False),
        ("*", PT.LITERAL, True),
        ("orders", PT.PREFIXED, True),
        ("o", PT.PREFIXED, True),
        ("ordersX", PT.PREFIXED, False),
        ("*", PT.PREFIXED, False),
        ("rders", PT.PREFIXED, False),
        ("orders", 9, False),
    ],
)
def test_a_pattern_stands_for_its_name_its_prefix_or_everything(name: str, pattern: int, matches: bool) -> None:
    assert reads(authorizer(acl(O.READ, name, pattern=pattern))) is matches


@pytest.mark.parametrize("denied", [O.READ, O.ALL])
@pytest.mark.parametrize(("name", "pattern"), [("orders", PT.LITERAL), ("*", PT.LITERAL), ("ord", PT.PREFIXED)])
def test_one_acl_that_denies_wins_over_all_that_allow(denied: int, name: str, pattern: int) -> None:
    allowed = [acl(O.READ), acl(O.ALL, "*"), acl(O.READ, "or", pattern=PT.PREFIXED)]
    denial = acl(denied, name, pattern=pattern, permission=P.DENY)
    assert not reads(authorizer(*allowed, denial))
    assert reads(authorizer(*allowed))


def test_rights_to_do_more_are_rights_to_describe_and_denials_of_them_are_not() -> None:
    for given_, implied in [(O.READ, O.DESCRIBE), (O.WRITE, O.DESCRIBE), (O.DELETE, O.DESCRIBE), (O.ALTER, O.DESCRIBE),
                            (O.ALTER_CONFIGS, O.DESCRIBE_CONFIGS)]:  # fmt: skip
        assert authorizer(acl(given_)).is_allowed(ALICE, implied, T.TOPIC, "orders")
        denied = authorizer(acl(given_, permission=P.DENY), acl(implied))
        assert denied.is_allowed(ALICE, implied, T.TOPIC, "orders")
    assert not authorizer(acl(O.CREATE)).is_allowed(ALICE, O.DESCRIBE, T.TOPIC, "orders")
    assert not authorizer(acl(O.DESCRIBE)).is_allowed(ALICE, O.READ, T.TOPIC, "orders")
    assert authorizer(acl(O.ALL)).is_allowed(ALICE, O.TWO_PHASE_COMMIT, T.TOPIC, "orders")


@pytest.mark.parametrize(
    ("acl_host", "host", "matches"),
    [
        ("*", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.2", "10.0.0.1", False),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1%eth0", True),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("not an address", "not an address", True),
        ("10.0.0.0/8", "10.255.255.255", True),
        ("10.0.0.0/8", "11.0.0.0", False),
        ("10.0.0.9/31", "10.0.0.8", True),
        ("10.0.0.9/31", "10.0.0.10", False),
        ("0.0.0.0/0", "10.0.0.1", True),
        ("0.0.0.0/0", "fe80::1", False),
        ("10.0.0.1/32", "::ffff:10.0.0.1", True),
        ("2001:db8::/32", "2001:db8:ffff::1", True),
        ("2001:db8:0:0:0:0:0:0/32", "2001:db9::", False),
        ("10.0.0.0/33", "10.0.0.0", False),
        ("10.0.0.0/255.0.0.0", "10.0.0.0", False),
        ("10.0.0.0/", "10.0.0.0", False),
        ("/8", "10.0.0.0", False),
        ("10.0.0.0/8", "not an address", False),
    ],
)
def test_a_host_is_every_host_one_address_in_any_spelling_or_a_range(acl_host: str, host: str, matches: bool) -> None:
    peer = Peer(host=host, principal=ALICE.principal)
    assert reads(authorizer(acl(O.READ, host=acl_host)), peer=peer) is matches


def test_principals_are_compared_as_they_are_written() -> None:
    for name in ("alice", "a:b", "CN=a b,O=\u00e4; \u202e", "*", ""):
        peer = Peer(principal=Principal("User", name))
        assert reads(authorizer(acl(O.READ, principal=f"User:{name}")), peer=peer)
        assert reads(authorizer(acl(O.READ, principal="User:*")), peer=peer)
        assert not reads(authorizer(acl(O.READ, principal=f"User:{name}x")), peer=peer)
        assert not reads(authorizer(acl(O.READ, principal=f"Group:{name}")), peer=peer)
    assert not reads(authorizer(acl(O.READ, principal="User:A")), peer=Peer(principal=Principal("User", "a")))


def test_a_super_user_may_everything_whatever_acls_say() -> None:
    made = authorizer(acl(O.ALL, "*", permission=P.DENY), super_users=["User:alice"])
    assert reads(made)
    assert made.is_allowed_somewhere(ALICE, O.WRITE, T.TOPIC)


def test_a_change_counts_for_the_next_question_and_is_announced() -> None:
    changes: list[bool] = []
    made = StandardAuthorizer(super_users=(), allow_without_acls=False, on_change=lambda: changes.append(True))
    assert not reads(made)
    made.add_records([acl_record(UUID(int=1), acl(O.READ)), acl_record(UUID(int=2), acl(O.WRITE))])
    assert reads(made)
    assert made.is_allowed_somewhere(ALICE, O.WRITE, T.TOPIC)
    made.add_records([RemoveAccessControlEntryRecord(id=UUID(int=1))])
    assert not reads(made)
    made.add_records([RemoveAccessControlEntryRecord(id=UUID(int=2))])
    assert not made.is_allowed_somewhere(ALICE, O.WRITE, T.TOPIC)
    assert len(changes) == 3


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_authorizer, "MAX_DECISIONS", 10)
    made = authorizer(acl(O.READ, "*"))
    for number in range(100):
        assert reads(made, f"t{number}" + "x" * 300)
    assert made.remembered_count == 0
    for number in range(100):
        assert reads(made, f"t{number}")
        assert 0 < made.remembered_count <= 10


def test_authorized_operations_are_those_that_are_allowed_and_asked_for() -> None:
    made = authorizer(acl(O.READ), acl(O.ALTER_CONFIGS))
    asked = 1 << O.READ | 1 << O.WRITE | 1 << O.DESCRIBE_CONFIGS
    assert made.allowed_operations(ALICE, asked, T.TOPIC, "orders") == 1 << O.READ | 1 << O.DESCRIBE_CONFIGS


@pytest.mark.parametrize(
    ("acls", "may"),
    [
        ([], False),
        ([acl(O.WRITE)], True),
        ([acl(O.ALL)], True),
        ([acl(O.WRITE, kind=T.GROUP)], False),
        ([acl(O.WRITE, host="10.9.9.9")], False),
        ([acl(O.WRITE), acl(O.WRITE, permission=P.DENY)], False),
        ([acl(O.WRITE), acl(O.WRITE, "ord", pattern=PT.PREFIXED, permission=P.DENY)], False),
        ([acl(O.WRITE), acl(O.WRITE, "orders", pattern=PT.PREFIXED, permission=P.DENY)], False),
        ([acl(O.WRITE), acl(O.WRITE, "orders2", pattern=PT.PREFIXED, permission=P.DENY)], True),
        ([acl(O.WRITE, "o", pattern=PT.PREFIXED), acl(O.WRITE, permission=P.DENY)], True),
        ([acl(O.WRITE, "o", pattern=PT.PREFIXED), acl(O.WRITE, "o", permission=P.DENY)], True),
        ([acl(O.WRITE, "*"), acl(O.ALL, "o", pattern=PT.PREFIXED, permission=P.DENY)], True),
        ([acl(O.WRITE, "*"), acl(O.ALL, "*", permission=P.DENY)], False),
        ([acl(O.WRITE, "h", pattern=PT.PREFIXED), acl(O.WRITE, "*", permission=P.DENY)], False),
    ],
)
def test_a_right_to_some_resource_of_a_type_is_one_that_no_denial_covers(acls: list[Acl], may: bool) -> None:
    assert authorizer(*acls).is_allowed_somewhere(ALICE, O.WRITE, T.TOPIC) is may


# --- against the model of `kit.naive_rights` -------------------------------------------------------------------------

NAMES = st.text("ab*", min_size=1, max_size=3)
ACLS = st.builds(
    Acl,
    resource_type=st.sampled_from([T.TOPIC, T.GROUP]),
    resource_name=NAMES,
    pattern_type=st.sampled_from([PT.LITERAL, PT.PREFIXED]),
    principal=st.sampled_from(["User:a", "User:b", "User:*", "Group:a"]),
    host=st.sampled_from(["*", "h1", "h2"]),
    operation=st.sampled_from([O.ALL, O.READ, O.WRITE, O.DESCRIBE, O.ALTER_CONFIGS, O.DESCRIBE_CONFIGS]),
    permission_type=st.sampled_from([P.ALLOW, P.DENY]),
)
QUESTIONS = st.tuples(
    st.sampled_from(["a", "b", "*"]),
    st.sampled_from(["h1", "h2"]),
    st.sampled_from([O.READ, O.WRITE, O.DESCRIBE, O.DESCRIBE_CONFIGS]),
    st.sampled_from([T.TOPIC, T.GROUP]),
    NAMES,
)


@settings(max_examples=examples(400))
@given(
    steps=st.lists(
        st.tuples(st.one_of(ACLS, st.integers(0, 20)), st.lists(QUESTIONS, max_size=4)), min_size=1, max_size=15
    ),
    open_without=st.booleans(),
)
def test_the_authorizer_decides_as_a_naive_model_through_any_changes(
    steps: list[tuple[Acl | int, list[tuple[str, str, AclOperation, ResourceType, str]]]], open_without: bool
) -> None:
    made = StandardAuthorizer(super_users=["User:b"], allow_without_acls=open_without)
    present: dict[UUID, Acl] = {}
    for number, (step, questions) in enumerate(steps):
        if isinstance(step, Acl):
            acl_id = UUID(int=number % 8)
            present.pop(acl_id, None)
            present[acl_id] = step
            made.add_records([acl_record(acl_id, step)])
        elif present:
            acl_id = list(present)[step % len(present)]
            del present[acl_id]
            made.add_records([RemoveAccessControlEntryRecord(id=acl_id)])
        acls = list(present.values())
        for user, host, operation, kind, name in questions * 2:
            peer, who = Peer(host=host, principal=Principal("User", user)), f"User:{user}"
            is_super = user == "b"
            expected = naively_allowed(acls, who, host, operation, kind, name, open_without=open_without)
            assert made.is_allowed(peer, operation, kind, name) is (is_super or expected)
            expected = naively_allowed_somewhere(acls, who, host, operation, kind, open_without=open_without)
            assert made.is_allowed_somewhere(peer, operation, kind) is (is_super or expected)
