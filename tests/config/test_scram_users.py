"""`--add-scram` as Kafka's ScramParser reads it."""

from __future__ import annotations

import base64

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.scram_users import check_scram_users, parse_scram_users
from ottla.scram import salted_password

SALT = base64.b64encode(b"pepper and salt").decode()


def test_a_password_is_salted_with_a_random_salt_and_4096_iterations() -> None:
    (one,) = parse_scram_users("SCRAM-SHA-256=[name=alice,password=a=b]")
    assert (one.name, one.mechanism, one.iterations) == ("alice", "SCRAM-SHA-256", 4096)
    assert one.salted_password == salted_password("SCRAM-SHA-256", "a=b", one.salt, 4096)
    assert one.salt != parse_scram_users("SCRAM-SHA-256=[name=alice,password=a=b]")[0].salt
    assert 20 < len(one.salt) <= 26


def test_salt_iterations_and_salted_password_may_be_given_in_quotes() -> None:
    salted = base64.b64encode(b"s" * 64).decode()
    text = f'SCRAM-SHA-512=[name="bob",iterations=8192,salt="{SALT}",saltedpassword="{salted}"]'
    assert parse_scram_users(text) == [("bob", "SCRAM-SHA-512", 8192, b"pepper and salt", b"s" * 64)]


@pytest.mark.parametrize("between", [" ", ",", "; ", "\n"])
def test_several_users_are_told_apart(between: str) -> None:
    text = between.join(f"SCRAM-SHA-256=[name={name},password=p]" for name in ("a", "b", "c"))
    assert [one.name for one in parse_scram_users(text)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SCRAM-SHA-256", "must be SCRAM"),
        ("SCRAM-SHA-256=name=a,password=hidden", "must be SCRAM"),
        ("SCRAM-SHA-256=[name=a,password=hidden", "must be SCRAM"),
        ("SCRAM-SHA-1=[name=a,password=hidden]", "must name SCRAM-SHA-256"),
        ("PLAIN=[name=a,password=hidden]", "must name SCRAM-SHA-256"),
        ("SCRAM-SHA-256=[password=hidden]", "must have a name"),
        ("SCRAM-SHA-256=[name=,password=hidden]", "must have a name"),
        ("SCRAM-SHA-256=[name=a]", "one of password"),
        ("SCRAM-SHA-256=[name=a,password=]", "empty password"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=AAAA]", "must have the salt"),
        ("SCRAM-SHA-256=[name=a,salt=hidden!,password=hidden]", "salt that is not base64"),
        ("SCRAM-SHA-256=[name=a,password=hidden,iterations=4095]", "iterations"),
        ("SCRAM-SHA-256=[name=a,password=hidden,iterations=16385]", "iterations"),
        ("SCRAM-SHA-256=[name=a,password=hidden,iterations=1000000000000]", "iterations"),
        ("SCRAM-SHA-256=[name=a,password=hidden,iterations=x]", "iterations"),
        ("SCRAM-SHA-256=[name=a,password=hidden,more=hidden]", "a part that is none of"),
        ("SCRAM-SHA-256=[name=a,password=hid,den]", "a part that is none of"),
    ],
)
def test_what_is_wrong_is_said_without_showing_it(text: str, reason: str) -> None:
    for read in (check_scram_users, parse_scram_users):
        with pytest.raises(ValueError, match=reason) as refusal:
            read(text)
        assert "hid" not in str(refusal.value)
    with pytest.raises(ConfigError, match=reason) as wrong:
        BrokerConfig.of({"ottla.add.scram": text})
    assert "hid" not in str(wrong.value).replace("[hidden]", "")


def test_a_user_shows_no_password() -> None:
    (one,) = parse_scram_users("SCRAM-SHA-256=[name=alice,password=hunter2]")
    assert repr(one) == "ScramUser('alice', SCRAM-SHA-256)"
    config = BrokerConfig.of({"ottla.add.scram": "SCRAM-SHA-256=[name=alice,password=hunter2]"})
    (entry,) = config.describe(["ottla.add.scram"])
    assert entry.is_sensitive
    assert "hunter2" not in repr(entry)
