"""Listeners with SASL: which a start takes, and which it refuses with what to set."""

from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.logins import plain_passwords

LISTENERS = "IN://127.0.0.1:9092,OUT://127.0.0.1:9093"
MAP = "IN:PLAINTEXT,OUT:SASL_PLAINTEXT"
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="hidden" '


def config(**keys: str) -> BrokerConfig:
    given = {"listeners": LISTENERS, "listener.security.protocol.map": MAP}
    return BrokerConfig.load(overrides=given | {key.replace("__", "-").replace("_", "."): v for key, v in keys.items()})


def test_kafkas_default_of_mechanisms_is_refused_with_what_to_set() -> None:
    with pytest.raises(
        ConfigError, match=r"sasl\.enabled\.mechanisms=GSSAPI.*set sasl\.enabled\.mechanisms to some of"
    ):
        config()


def test_a_mechanism_that_is_not_served_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"listener\.name\.out\.sasl\.enabled\.mechanisms.*GSSAPI is not served"):
        config(listener_name_out_sasl_enabled_mechanisms="SCRAM-SHA-256,GSSAPI")


def test_listeners_without_sasl_need_no_mechanism() -> None:
    assert BrokerConfig.load(overrides={"listeners": "PLAINTEXT://:9092"}).sasl_enabled_mechanisms == ("GSSAPI",)


def test_the_key_of_mechanism_and_listener_wins_over_that_of_the_listener_and_that_over_all() -> None:
    def users(**keys: str) -> dict[str, str]:
        return plain_passwords(config(sasl_enabled_mechanisms="PLAIN", **keys), "OUT")

    one, two, three = (PLAIN + f'user_{number}="x";' for number in "abc")
    assert users(sasl_jaas_config=one) == {"a": "x"}
    assert users(sasl_jaas_config=one, listener_name_out_sasl_jaas_config=two) == {"b": "x"}
    assert users(
        sasl_jaas_config=one,
        listener_name_out_sasl_jaas_config=two,
        listener_name_out_plain_sasl_jaas_config=three,
    ) == {"c": "x"}


def test_keys_of_a_mechanism_count_for_it_alone() -> None:
    made = config(
        sasl_enabled_mechanisms="SCRAM-SHA-256,SCRAM-SHA-512",
        connections_max_reauth_ms="1000",
        **{"listener_name_out_scram__sha__256_connections_max_reauth_ms": "2000"},
    )
    assert made.on_listener("OUT").connections_max_reauth_ms == 1000
    assert made.on_listener("OUT", "SCRAM-SHA-256").connections_max_reauth_ms == 2000
    assert made.on_listener("OUT", "SCRAM-SHA-512").connections_max_reauth_ms == 1000
    assert not [warning for warning in made.warnings if "without effect" in warning]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("", "must be set"),
        (PLAIN + ";", "names no users"),
        (PLAIN + 'user_a="hidden"', "semicolon"),
        ('ScramLoginModule required user_a="hidden";', "must name PlainLoginModule"),
    ],
)
def test_plain_without_users_is_refused_and_no_password_is_shown(entry: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refusal:
        config(sasl_enabled_mechanisms="PLAIN", listener_name_out_plain_sasl_jaas_config=entry)
    assert "listener.name.out.plain.sasl.jaas.config" in str(refusal.value)
    assert "hidden" not in str(refusal.value).replace("[hidden]", "")
