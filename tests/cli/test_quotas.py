"""`quotas` against a real broker: what it lists, changes and refuses, and which quota it says a client is under."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.broker import BrokerProcess
from kit.command import Said, run

from ottla.broker.metadata import quota_plans
from ottla.broker.security.quotas.limits import KINDS, Limits
from ottla.cli.quota_entities import CLIENT_QUOTAS, IP_QUOTAS, entity_of, entity_words, quotas_of_client
from ottla.client.blocking import Admin


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose clients may have quotas."""
    with BrokerProcess(tmp_path_factory.mktemp("quotas") / "data") as running:
        yield running


@pytest.fixture(autouse=True)
def without_quotas(own: BrokerProcess) -> Iterator[None]:
    yield
    with Admin(own.bootstrap) as admin:
        found = admin.describe_quotas()
        admin.alter_quotas({entity: dict.fromkeys(values) for entity, values in found.items()})


def quotas(broker: BrokerProcess, words: str, status: int = 0) -> Said:
    said = run("quotas", *shlex.split(words), "-b", broker.bootstrap)
    assert said.status == status, said.err
    return said


def listed(broker: BrokerProcess, words: str = "") -> list[tuple[dict[str, str | None], dict[str, float]]]:
    rows = [json.loads(line) for line in quotas(broker, f"list --json {words}").out.splitlines()]
    return [(row["entity"], row["quotas"]) for row in rows]


def test_quotas_are_set_listed_and_removed(own: BrokerProcess) -> None:
    assert quotas(own, "list").out == ""
    said = quotas(own, "alter --user alice --set producer_byte_rate=1048576 --set request_percentage=12.5")
    assert said.out == "user alice: producer_byte_rate=1048576, request_percentage=12.5\n"
    assert quotas(own, "list").out.splitlines() == [
        "entity      quota                   value  unit",
        "user alice  producer_byte_rate  1,048,576  bytes/s",
        "user alice  request_percentage       12.5  % of a processor",
    ]
    assert listed(own) == [({"user": "alice"}, {"producer_byte_rate": 1048576, "request_percentage": 12.5})]
    said = quotas(own, "alter --user alice --delete producer_byte_rate --set request_percentage=20")
    assert said.out == "user alice: request_percentage=20, producer_byte_rate deleted\n"
    assert listed(own) == [({"user": "alice"}, {"request_percentage": 20})]


@pytest.mark.parametrize(
    ("words", "entities"),
    [
        ("--user a --user b", [{"user": "a"}, {"user": "b"}]),
        ("--user-defaults", [{"user": None}]),
        ("--client-id c --client-defaults", [{"client-id": "c"}, {"client-id": None}]),
        ("--user a --client-id c", [{"user": "a", "client-id": "c"}]),
        (
            "--user a --user-defaults --client-id c",
            [{"user": "a", "client-id": "c"}, {"user": None, "client-id": "c"}],
        ),
        ("--user-defaults --client-defaults", [{"user": None, "client-id": None}]),
    ],
)
def test_every_kind_of_client_has_quotas(own: BrokerProcess, words: str, entities: list[dict[str, str | None]]) -> None:
    quotas(own, f"alter {words} --set consumer_byte_rate=7")
    assert listed(own) == [(entity, {"consumer_byte_rate": 7}) for entity in entities]


def test_addresses_have_a_quota_of_their_own(own: BrokerProcess) -> None:
    said = quotas(own, "alter --ip 10.0.0.7 --ip-defaults --set connection_creation_rate=10")
    assert said.out == "address 10.0.0.7: connection_creation_rate=10\ndefault address: connection_creation_rate=10\n"
    assert listed(own, "--ip 10.0.0.7") == [({"ip": "10.0.0.7"}, {"connection_creation_rate": 10})]
    assert listed(own, "--ip-defaults") == [({"ip": None}, {"connection_creation_rate": 10})]


def test_a_list_of_some_has_them_with_whatever_they_are_combined_with(own: BrokerProcess) -> None:
    quotas(own, "alter --user a --set consumer_byte_rate=1")
    quotas(own, "alter --user a --user b --client-id c --set consumer_byte_rate=2")
    assert [entity for entity, _ in listed(own, "--user a")] == [{"user": "a", "client-id": "c"}, {"user": "a"}]
    both = [{"user": "a", "client-id": "c"}, {"user": "b", "client-id": "c"}]
    assert [entity for entity, _ in listed(own, "--client-id c")] == both
    assert [entity for entity, _ in listed(own, "--client-id c --user b")] == both[1:]
    assert listed(own, "--user nobody") == []


def test_a_dry_run_changes_nothing(own: BrokerProcess) -> None:
    said = quotas(own, "alter --user alice --set consumer_byte_rate=5 --dry-run")
    assert said.out == "user alice: consumer_byte_rate=5 (not done, only checked)\n"
    assert listed(own) == []
    said = quotas(own, "alter --user alice --set consumer_byte_rate=1.5 --dry-run", status=1)
    assert said.line == "ottla: user alice: consumer_byte_rate cannot be a fractional value. (INVALID_REQUEST)"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            "--user a --set producer_rate=5",
            "ottla: there is no quota 'producer_rate': did you mean producer_byte_rate? There are, for clients, "
            "producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate",
        ),
        ("--ip 1.1.1.1 --delete xyzzy", "no quota 'xyzzy'; there are, for addresses, connection_creation_rate"),
        (
            "--user a --set producer_byte_rate=-5",
            "ottla: producer_byte_rate=-5: a quota is greater than 0; `--delete producer_byte_rate` removes it",
        ),
        ("--user a --set producer_byte_rate=0", "a quota is greater than 0"),
        ("--user a --set producer_byte_rate=10MB", "'10MB' is not a number; the quota counts bytes/s"),
        ("--user a --set producer_byte_rate=nan", "'nan' is not a number"),
        ("--user a --set producer_byte_rate=inf", "'inf' is not a number"),
        ("--user a --set producer_byte_rate", "is not KEY=VALUE, such as producer_byte_rate=1048576"),
        ("--user a --set consumer_byte_rate=1 --delete consumer_byte_rate", "consumer_byte_rate is named twice"),
        ("--user a --set connection_creation_rate=5", "is a quota of addresses: give it to --ip or --ip-defaults"),
        ("--ip 1.1.1.1 --set producer_byte_rate=5", "is a quota of clients: give it to --user or --client-id"),
        ("--ip 1.1.1.1 --user a --set producer_byte_rate=5", "give --ip without --user and --client-id"),
        ("--topic t --set producer_byte_rate=5", "--topic: a topic has no quotas: give --user, --client-id or --ip"),
        ("-g g --set producer_byte_rate=5", "-g: a group has no quotas: give --user"),
        ("--entity-type users --entity-name a --set producer_byte_rate=5", "entities are named by their type: give"),
    ],
)
def test_what_cannot_be_a_quota_is_one_line_before_a_broker_is_asked(words: str, reason: str) -> None:
    said = run("quotas", "alter", *shlex.split(words), "-b", "127.0.0.1:1")
    assert said.status == 2
    assert reason in said.line


def test_what_the_broker_refuses_names_the_entity_and_the_others_are_changed(own: BrokerProcess) -> None:
    said = quotas(own, "alter --ip nonsense --ip 10.0.0.8 --set connection_creation_rate=5", status=1)
    assert said.line == "ottla: address nonsense: nonsense is not a valid IP or resolvable host. (INVALID_REQUEST)"
    assert said.out == "address 10.0.0.8: connection_creation_rate=5\n"
    assert listed(own) == [({"ip": "10.0.0.8"}, {"connection_creation_rate": 5})]


@pytest.mark.parametrize("address", ["nonsense", "1.2.3", "10.0.0.0/8", ""])
def test_what_is_no_address_has_no_quotas_to_describe(address: str) -> None:
    said = run("quotas", "describe", "--ip", address, "-b", "127.0.0.1:1")
    assert said.status == 2
    assert (f"{address!r} is not an IP address" if address else "must not be empty") in " ".join(said.err.split())


def test_a_quota_that_is_not_set_is_not_removed_and_nothing_else_is_changed(own: BrokerProcess) -> None:
    quotas(own, "alter --user alice --set request_percentage=5")
    words = "alter --user alice --delete producer_byte_rate --set request_percentage=9"
    assert quotas(own, words, status=1).line == (
        "ottla: user alice has no quota producer_byte_rate (it has request_percentage); nothing was changed"
    )
    assert listed(own) == [({"user": "alice"}, {"request_percentage": 5})]


@pytest.mark.parametrize("words", ["alter --user a", "alter --set producer_byte_rate=5", "describe"])
def test_a_command_that_names_nothing_says_what_it_needs(own: BrokerProcess, words: str) -> None:
    quotas(own, words, status=2)


def test_describe_shows_the_quotas_that_count_and_what_they_are_set_for(own: BrokerProcess) -> None:
    quotas(own, "alter --user alice --set producer_byte_rate=100 --set consumer_byte_rate=100")
    quotas(own, "alter --user alice --client-defaults --set consumer_byte_rate=50")
    quotas(own, "alter --client-id app --set request_percentage=5")
    quotas(own, "alter --ip-defaults --set connection_creation_rate=9")
    assert quotas(own, "describe --user alice --client-id app").out.splitlines() == [
        "user alice, client app",
        "  quota                     value  unit              set for",
        "  producer_byte_rate          100  bytes/s           user alice",
        "  consumer_byte_rate           50  bytes/s           user alice, default client",
        "  request_percentage            5  % of a processor  client app",
        "  controller_mutation_rate      -  partitions/s      no limit",
    ]
    (line,) = quotas(own, "describe --client-id app --ip 10.0.0.1 --json").out.splitlines()
    found = json.loads(line)
    assert found["client"] == {"user": "ANONYMOUS", "client-id": "app", "ip": "10.0.0.1"}
    assert [(one["quota"], one["value"], one["set_for"]) for one in found["quotas"] if one["value"] is not None] == [
        ("request_percentage", 5, {"client-id": "app"}),
        ("connection_creation_rate", 9, {"ip": None}),
    ]


def test_the_quotas_are_those_of_the_broker() -> None:
    assert CLIENT_QUOTAS.keys() == quota_plans._CLIENT_KEYS.keys() == set(KINDS)
    assert IP_QUOTAS.keys() == quota_plans._IP_KEYS.keys()


NAMES = [{}, {"user": "u"}, {"user": None}]
ENTITIES = [
    entity_of({**user, **client})
    for user, client in product(NAMES, [{}, {"client-id": "c"}, {"client-id": None}])
    if user or client
]


@given(st.sets(st.sampled_from(ENTITIES)))
def test_the_quota_that_counts_is_the_one_that_the_broker_enforces(
    entities: set[tuple[tuple[str, str | None], ...]],
) -> None:
    quotas_set = {
        entity: {"producer_byte_rate": float(number + 1)} for number, entity in enumerate(sorted(entities, key=str))
    }
    limits = Limits("producer_byte_rate")
    limits.change(quotas_set)
    for user, client_id in product(("u", "other"), ("c", "other")):
        enforced = limits.of(user, client_id)
        shown = quotas_of_client(quotas_set, user, client_id).get("producer_byte_rate")
        assert (shown and shown.value) == (enforced and enforced.bound)
        if client_id == "other":
            assert quotas_of_client(quotas_set, user, None).get("producer_byte_rate") == shown


def test_entities_in_words() -> None:
    assert entity_words(entity_of({"user": "alice", "client-id": None})) == "user alice, default client"
    assert entity_words(entity_of({"new-kind": "x"})) == "new-kind x"
