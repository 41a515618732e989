"""What Kafka's options about TLS and SASL mean together, and which do not go together."""

from __future__ import annotations

import pytest

from ottla.client_core.security import DEFAULTS, SECRET, SecurityProblem, read_security

PLAIN_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="s3;cret";'
SCRAM_JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="s3cret"'
BEARER_JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def sasl(mechanism, **given):
    named = {name.replace("_", "."): value for name, value in given.items()}
    return read_security({"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, **named})


def test_nothing_given_is_plaintext():
    found = read_security({})
    assert (found.protocol, found.tls, found.login) == ("PLAINTEXT", None, None)


@pytest.mark.parametrize(
    ("protocol", "has_tls", "has_login"),
    [
        ("plaintext", False, False),
        ("SSL", True, False),
        ("SASL_PLAINTEXT", False, True),
        ("sasl_ssl", True, True),
    ],
)
def test_what_the_protocol_does_not_ask_for_is_left_alone(protocol, has_tls, has_login):
    found = read_security(
        {
            "security.protocol": protocol,
            "sasl.mechanism": "plain",
            "sasl.jaas.config": PLAIN_JAAS,
            "ssl.key.password": "x",
        }
    )
    assert found.protocol == protocol.upper()
    assert (found.tls is not None, found.login is not None) == (has_tls, has_login)


def test_a_jaas_entry_and_the_short_form_say_the_same():
    assert (
        sasl("PLAIN", sasl_jaas_config=PLAIN_JAAS).login
        == sasl("PLAIN", sasl_username="alice", sasl_password="s3;cret").login
    )


@pytest.mark.parametrize(("option", "is_token"), [('tokenauth="true"', True), ("tokenauth=false", False), ("", False)])
def test_a_delegation_token_is_named_by_tokenauth(option, is_token):
    login = sasl("SCRAM-SHA-512", sasl_jaas_config=f"{SCRAM_JAAS} {option};").login
    assert login is not None
    assert login.is_delegation_token is is_token


@pytest.mark.parametrize(
    ("given", "option", "said"),
    [
        ({"security.protocol": "TLS"}, "security.protocol", "must be one of PLAINTEXT, SSL"),
        ({"sasl.mechanism": ""}, "sasl.mechanism", "must be one of PLAIN"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism", "must be one of PLAIN"),
        ({}, "sasl.username", "is missing, or sasl.jaas.config"),
        ({"sasl.username": "alice"}, "sasl.password", "password is empty"),
        ({"sasl.jaas.config": "s3cret"}, "sasl.jaas.config", ""),
        ({"sasl.jaas.config": PLAIN_JAAS[:-1]}, "sasl.jaas.config", ""),
        ({"sasl.jaas.config": SCRAM_JAAS + ";"}, "sasl.jaas.config", "PLAIN needs PlainLoginModule"),
        ({"sasl.jaas.config": PLAIN_JAAS, "sasl.username": "bob"}, "sasl.jaas.config", "give one of them"),
        ({"sasl.jaas.config": PLAIN_JAAS.replace("alice", "")}, "sasl.jaas.config", "no name"),
        ({"ssl.truststore.type": "BKS"}, "ssl.truststore.type", "PEM or PKCS12"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols", "TLSv1.2, TLSv1.3"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "ssl.endpoint.identification.algorithm", "https"),
        (
            {"ssl.truststore.location": "x", "ssl.truststore.certificates": "y"},
            "ssl.truststore.certificates",
            "give one",
        ),
        ({"ssl.keystore.location": "x", "ssl.keystore.key": "s3cret"}, "ssl.keystore.key", "give one"),
        ({"ssl.keystore.key": "s3cret"}, "ssl.keystore.key", "give both"),
        (
            {"ssl.truststore.certificates": "x", "ssl.truststore.type": "jks"},
            "ssl.truststore.type",
            "must be PEM (or not set) where ssl.truststore.certificates is set",
        ),
        (
            {"ssl.keystore.key": "x", "ssl.keystore.certificate.chain": "x", "ssl.keystore.type": "PKCS12"},
            "ssl.keystore.type",
            "must be PEM (or not set) where ssl.keystore.key is set",
        ),
        ({"ssl.key.location": "x"}, "ssl.key.location", "ssl.keystore.location"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_said_by_the_name_of_the_option_and_without_secrets(given, option, said):
    with pytest.raises(SecurityProblem) as problem:
        read_security({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", **given})
    assert problem.value.option == option
    assert said in problem.value.problem
    assert "s3" not in str(problem.value)


def test_an_empty_algorithm_checks_no_host_name():
    def checks(**given):
        tls = read_security({"security.protocol": "SSL", **given}).tls
        assert tls is not None
        return tls.checks_host_name

    assert checks()
    assert checks(**{"ssl.endpoint.identification.algorithm": "HTTPS"})
    assert not checks(**{"ssl.endpoint.identification.algorithm": ""})


def test_a_token_is_given_or_fetched_from_a_file_or_a_server():
    assert sasl("OAUTHBEARER", sasl_oauthbearer_token="abc").login.token == "abc"
    source = sasl("OAUTHBEARER", **{"sasl_oauthbearer_token_endpoint_url": "file:///run/token"}).token_source
    assert source.url == "file:///run/token"
    jaas = f'{BEARER_JAAS} clientId="me" clientSecret="s3cret" scope="logs" extension_x="y";'
    found = sasl("OAUTHBEARER", sasl_jaas_config=jaas, sasl_oauthbearer_token_endpoint_url="https://id.example/token")
    java = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    assert found == sasl(
        "OAUTHBEARER",
        sasl_jaas_config=jaas,
        sasl_oauthbearer_token_endpoint_url="https://id.example/token",
        sasl_login_callback_handler_class=java,
    )
    with pytest.raises(SecurityProblem, match="names code of Java"):
        sasl("OAUTHBEARER", sasl_oauthbearer_token="abc", sasl_login_callback_handler_class="com.example.Mine")
    assert (found.token_source.client_id, found.token_source.scope) == ("me", "logs")
    assert found.login.extensions == {"x": "y"}
    assert found.with_token(" abc\n").token == "abc"
    with pytest.raises(SecurityProblem, match="no bearer token"):
        found.with_token("")


@pytest.mark.parametrize(
    ("url", "jaas", "option"),
    [
        ("", "", "sasl.oauthbearer.token.endpoint.url"),
        ("ftp://x/y", "", "sasl.oauthbearer.token.endpoint.url"),
        ("https:///y", "", "sasl.oauthbearer.token.endpoint.url"),
        ("https://x/y", "", "sasl.jaas.config"),
        ("https://x/y", f'{BEARER_JAAS} clientId="me";', "sasl.jaas.config"),
    ],
)
def test_a_token_that_cannot_be_had_is_refused_beforehand(url, jaas, option):
    with pytest.raises(SecurityProblem) as problem:
        sasl("OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=url, sasl_jaas_config=jaas)
    assert problem.value.option == option


def test_no_secret_is_in_what_is_shown_of_the_settings():
    given = dict.fromkeys(SECRET - {"sasl.jaas.config"}, "s3cret")
    given |= {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    del given["ssl.keystore.key"]
    found = read_security(given)
    assert found.login is not None
    assert found.login.password == "s3cret"
    assert "s3cret" not in repr(found)
    jaas = f'{BEARER_JAAS} clientId="me" clientSecret="s3cret";'
    found = sasl("OAUTHBEARER", sasl_jaas_config=jaas, sasl_oauthbearer_token_endpoint_url="https://x/y")
    assert "s3cret" not in repr(found)


def test_every_secret_is_an_option():
    assert set(DEFAULTS) > SECRET
