"""Protocol versions and cipher suites: what Java's names come to in OpenSSL."""

from __future__ import annotations

import ssl

import pytest

from ottla.broker.security.tls.ciphers import TLS_1_2_SUITES, TLS_1_3_SUITES, choose

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
BOTH = ("TLSv1.2", "TLSv1.3")
GCM = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"


@pytest.mark.parametrize("name", TLS_1_2_SUITES)
def test_each_suite_is_the_one_that_openssl_takes_for_it(name: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(TLS_1_2_SUITES[name])
    (found,) = [cipher for cipher in context.get_ciphers() if cipher["name"] not in TLS_1_3_SUITES]
    words = name.removeprefix("TLS_").split("_WITH_")
    kind, _, bits = words[1].partition("_")
    said = found["description"]
    assert f"Kx={'RSA' if words[0] == 'RSA' else 'ECDH'} " in said
    assert f"Au={words[0].rpartition('_')[2]} " in said
    assert kind in said.replace("AESGCM", "AES")
    assert kind == "CHACHA20" or f"({bits[:3]})" in said
    assert ("GCM" in name) == ("GCM" in said)


def test_suites_of_tls_1_3_are_those_that_openssl_has_on() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert {one["name"] for one in context.get_ciphers() if one["protocol"] == "TLSv1.3"} == set(TLS_1_3_SUITES)


@pytest.mark.parametrize(
    ("versions", "suites", "expected"),
    [
        (BOTH, (), (V12, V13, "")),
        (("TLSv1.3",), (), (V13, V13, "")),
        (("TLSv1.2",), (), (V12, V12, "")),
        ((), (), (V12, V13, "")),
        (BOTH, (GCM,), (V12, V12, "ECDHE-RSA-AES256-GCM-SHA384")),
        (BOTH, (GCM, *TLS_1_3_SUITES), (V12, V13, "ECDHE-RSA-AES256-GCM-SHA384")),
        (BOTH, TLS_1_3_SUITES, (V13, V13, "")),
    ],
)
def test_versions_without_a_suite_are_off(
    versions: tuple[str, ...], suites: tuple[str, ...], expected: tuple[object, ...]
) -> None:
    choice = choose(versions, suites)
    assert (choice.lowest, choice.highest, choice.suites) == expected
    assert choice.warnings == ()


@pytest.mark.parametrize(
    ("versions", "suites", "key", "reason"),
    [
        (("TLSv1.4",), (), "ssl.enabled.protocols", "TLSv1.4 is none of TLSv1.2, TLSv1.3"),
        (("TLSv1", "TLSv1.1"), (), "ssl.enabled.protocols", "must name one of TLSv1.2, TLSv1.3"),
        (BOTH, ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256",), "ssl.cipher.suites", "is not offered; these are: TLS_AES"),
        (BOTH, ("AES128-SHA",), "ssl.cipher.suites", "AES128-SHA is not offered"),
        (("TLSv1.3",), (GCM,), "ssl.cipher.suites", "has no suite of TLSv1.3"),
        (("TLSv1.2",), TLS_1_3_SUITES, "ssl.cipher.suites", "has no suite of TLSv1.2"),
    ],
)
def test_what_cannot_be_is_refused(versions: tuple[str, ...], suites: tuple[str, ...], key: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        choose(versions, suites)
    assert caught.value.args[0] == key
    assert reason in caught.value.args[1]


def test_what_python_cannot_switch_off_is_said() -> None:
    (two,) = choose(BOTH, (GCM, "TLS_AES_256_GCM_SHA384")).warnings
    assert "so TLS_CHACHA20_POLY1305_SHA256, TLS_AES_128_GCM_SHA256 are on, too" in two
    (one,) = choose(BOTH, ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")).warnings
    assert "so TLS_AES_128_GCM_SHA256 is on, too" in one


def test_versions_that_are_not_safe_stay_off_and_are_named() -> None:
    choice = choose(("TLSv1.1", "TLSv1.2"), ())
    assert (choice.lowest, choice.highest) == (V12, V12)
    assert choice.warnings == ("ssl.enabled.protocols: TLSv1.1 is not safe, and stays off",)
    two = choose(("TLSv1", "TLSv1.1", "TLSv1.2"), ()).warnings
    assert two == ("ssl.enabled.protocols: TLSv1, TLSv1.1 are not safe, and stay off",)


def test_each_key_has_its_warning() -> None:
    warnings = choose(("TLSv1.1", *BOTH), (GCM, "TLS_AES_256_GCM_SHA384")).warnings
    assert [warning.partition(":")[0] for warning in warnings] == ["ssl.enabled.protocols", "ssl.cipher.suites"]
