"""The source and the sink with TLS and SASL, by themselves and by Spark, without a secret in sight."""

from __future__ import annotations

import pickle
import socket
import ssl
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kit.broker import BrokerProcess
from kit.certificates import certificates

from ottla.client import Acl, AclFilter, AclOperation, PatternType, ResourceType
from ottla.client.blocking import Admin
from ottla.client_core.handshake import Handshake, Settled, authenticate_again
from ottla.client_core.sasl import Login
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.spark import register
from ottla.spark.client_options import ClientSettings, client_settings
from ottla.spark.cluster import Cluster
from ottla.spark.connection import Connection
from ottla.spark.errors import AuthenticationFailed, BrokerUnavailable, OptionError
from ottla.spark.options import read_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.spark.option_values import Address

pytestmark = pytest.mark.timeout(300)

SECRET = "s3cret-of-alice"
KEY = "-----BEGIN PRIVATE KEY----- AAAA -----END PRIVATE KEY-----"
SERVER = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{SECRET}";'
LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{SECRET}";'
SASL = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": LOGIN,
}


@pytest.fixture(scope="module")
def secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    overrides = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": SERVER,
        "connections.max.reauth.ms": "2000",
        **certificates().server_overrides(client_auth="required"),
    }
    with BrokerProcess(tmp_path_factory.mktemp("secured"), overrides) as running:
        yield running


def settings_of(bootstrap: str, **kafka: str) -> ClientSettings:
    named = {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}
    return client_settings({"kafka.bootstrap.servers": bootstrap, **named}, {"fetchOffset.numRetries": "0"})


def address_of(settings: ClientSettings) -> Address:
    return settings.bootstrap_servers[0]


# Options --------------------------------------------------------------------------------------------------------------


def test_sparks_own_options_are_read_and_travel_without_being_shown() -> None:
    options = read_options({"subscribe": "t", "kafka.bootstrap.servers": "x:1", **SASL})
    security = options.client.security
    assert security.login == Login("PLAIN", "alice", SECRET)
    assert pickle.loads(pickle.dumps(options)).client.security == security
    assert SECRET not in repr(options) + str(options)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kafka.sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism must be one of PLAIN"),
        ({"kafka.sasl.jaas.config": SECRET}, "kafka.sasl.jaas.config has no flag"),
        ({"kafka.sasl.kerberos.service.name": "x"}, "kafka.sasl.kerberos.service.name is about TLS or SASL"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol must be one of PLAINTEXT, SSL"),
    ],
)
def test_what_cannot_be_used_is_said_by_its_name_without_the_secret(changed: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as refused:
        read_options({"subscribe": "t", "kafka.bootstrap.servers": "x:1", **SASL, **changed})
    assert said in str(refused.value)
    assert SECRET not in str(refused.value)


# Connections ----------------------------------------------------------------------------------------------------------


def test_a_login_is_renewed_before_the_session_ends(
    secured_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    logins: list[str] = []

    def renew(settled: Settled, login: Login, nonce: str) -> Handshake:
        logins.append(nonce)
        return authenticate_again(settled, login, nonce)

    monkeypatch.setattr("ottla.spark.connection.authenticate_again", renew)
    monkeypatch.setattr("ottla.spark.connection.SESSION_PART_BEFORE_LOGIN", 0.6)  # a broker wants a second in between
    settings = settings_of(
        secured_broker.bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=LOGIN
    )
    connection = Connection(address_of(settings), settings)
    try:
        connection.send(MetadataRequest(topics=[]))  # one is under way whenever a login is renewed
        while len(logins) < 2:
            connection.send(MetadataRequest(topics=[]))
            assert len(connection.parse(connection.receive(), MetadataResponse).brokers) == 1
        assert len(connection.parse(connection.receive(), MetadataResponse).brokers) == 1
    finally:
        connection.close()


def test_a_refused_login_is_one_line_and_one_attempt(secured_broker: BrokerProcess) -> None:
    wrong = LOGIN.replace(SECRET, "wr0ng")
    settings = settings_of(
        secured_broker.bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=wrong
    )
    with pytest.raises(AuthenticationFailed, match=r"^\S+: the PLAIN login of user 'alice' failed: ") as failed:
        Cluster(settings).describe(["t"])
    assert "wr0ng" not in str(failed.value)


def test_a_source_that_does_not_log_in_is_sent_to_security_protocol(secured_broker: BrokerProcess) -> None:
    with pytest.raises(BrokerUnavailable, match=r"want SASL\? kafka\.security\.protocol is PLAINTEXT"):
        Cluster(settings_of(secured_broker.bootstrap)).describe(["t"])


def test_a_source_that_logs_in_without_tls_at_a_listener_with_it_is_sent_to_security_protocol(
    secured_broker: BrokerProcess,
) -> None:
    address = f"127.0.0.1:{secured_broker.port_of('SSL')}"
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_jaas_config": LOGIN}
    with pytest.raises(BrokerUnavailable, match=r"want TLS\? kafka\.security\.protocol is SASL_PLAINTEXT"):
        Cluster(settings_of(address, **given)).describe(["t"])


@contextmanager
def tls_listener(name: str = "server") -> Iterator[str]:
    """The address of a listener that does the TLS handshake and hangs up after the first bytes."""
    pki = certificates()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain((pki.expired_server() if name == "expired" else pki.server).store)

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                peer.settimeout(5)
                with peer, suppress(OSError), context.wrap_socket(peer, server_side=True) as secured:
                    secured.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("name", "trusted", "kind", "said"),
    [
        ("server", True, BrokerUnavailable, "want SASL"),
        ("server", False, AuthenticationFailed, r"not of an authority that this client trusts"),
        ("expired", True, AuthenticationFailed, "the broker's certificate has expired"),
    ],
)
def test_a_certificate_is_checked(name: str, trusted: bool, kind: type[Exception], said: str) -> None:
    with tls_listener(name) as address:
        store = {"ssl_truststore_location": str(certificates().ca)} if trusted else {}
        with pytest.raises(kind, match=said):
            Cluster(settings_of(address, security_protocol="SSL", **store)).describe(["t"])


def test_a_source_without_tls_at_a_listener_with_it_is_sent_to_security_protocol() -> None:
    kinds = (AuthenticationFailed, BrokerUnavailable)
    with tls_listener() as address, pytest.raises(kinds, match=r"TLS.*kafka\.security\.protocol"):
        Cluster(settings_of(address)).describe(["t"])


def test_a_store_that_cannot_be_read_is_named_with_its_option() -> None:
    settings = settings_of("127.0.0.1:1", security_protocol="SSL", ssl_truststore_location="/nowhere")
    with pytest.raises(AuthenticationFailed, match=r"^kafka\.ssl\.truststore\.location /nowhere cannot be read: "):
        Cluster(settings).describe(["t"])


def test_a_token_server_that_refuses_the_client_is_one_line_and_one_attempt() -> None:
    asked: list[str] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_error(401)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = settings_of(
            "127.0.0.1:1",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_jaas_config='x.OAuthBearerLoginModule required clientId="me" clientSecret="s3cret";',
            sasl_oauthbearer_token_endpoint_url=f"http://127.0.0.1:{server.server_port}/token",
        )
        with pytest.raises(AuthenticationFailed, match=r"issues no token to client 'me': HTTP status 401"):
            Cluster(settings).describe(["t"])
        server.shutdown()
    assert asked == ["/token"]


# Spark ----------------------------------------------------------------------------------------------------------------


def shown_by_the_ui(spark: SparkSession) -> str:
    """What the page of SQL queries of Spark's UI says of all that has run."""
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    count = executions.size()
    assert count
    return "".join(
        executions.apply(index).physicalPlanDescription() + executions.apply(index).toString() for index in range(count)
    )


@pytest.mark.spark
def test_spark_writes_and_reads_with_a_login_and_shows_no_secret(
    spark: SparkSession, secured_broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    register(spark)
    topic = f"secured-{uuid.uuid4().hex[:8]}"
    options = {"kafka.bootstrap.servers": secured_broker.bootstrap, **SASL, "kafka.ssl.keystore.key": KEY}
    rows = spark.range(1000).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("ottla").options(**options, topic=topic).mode("append").save()
    frame = spark.read.format("ottla").options(**options, subscribe=topic).load()
    assert frame.count() == 1000
    frame.explain(extended=True)
    frame.explain("formatted")
    shown = capsys.readouterr().out + shown_by_the_ui(spark)
    assert "ottla" in shown.lower()
    wrong = {**options, "kafka.sasl.jaas.config": LOGIN.replace(SECRET, f"{SECRET}-not")}
    refused = spark.read.format("ottla").options(**wrong, subscribe=topic).load()
    with pytest.raises(Exception, match="login of user 'alice' failed") as failed:
        refused.count()
    shown += str(failed.value) + shown_by_the_ui(spark)
    assert SECRET not in shown
    assert KEY not in shown


@pytest.mark.spark
def test_spark_writes_and_reads_by_tls_with_a_certificate(spark: SparkSession, secured_broker: BrokerProcess) -> None:
    register(spark)
    topic = f"tls-{uuid.uuid4().hex[:8]}"
    options = {
        "kafka.bootstrap.servers": f"localhost:{secured_broker.port_of('SSL')}",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": str(certificates().ca),
        "kafka.ssl.keystore.location": str(certificates().client("alice").store),
    }
    rows = spark.range(1000).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("ottla").options(**options, topic=topic).mode("append").save()
    frame = spark.read.format("ottla").options(**options, subscribe=topic).load()
    read = frame.selectExpr("CAST(value AS STRING)").collect()
    assert sorted(int(row.value) for row in read) == list(range(1000))


@contextmanager
def broker_with_acls(directory: Path) -> Iterator[tuple[BrokerProcess, Admin]]:
    """A broker on which alice has no rights yet, and an Admin of a superuser."""
    users = f'{SERVER.removesuffix(";")} user_root="r";'
    overrides = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root",
    }
    root = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "root"}
    with BrokerProcess(directory, overrides) as broker, Admin(broker.bootstrap, **root, sasl_password="r") as admin:
        yield broker, admin


@pytest.mark.spark
def test_a_source_needs_to_read_its_topic_and_a_sink_to_write_its_own(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    with broker_with_acls(tmp_path) as (broker, admin):
        for topic, operation in (("in", AclOperation.READ), ("out", AclOperation.WRITE)):
            admin.create_topic(topic, partitions=1, replication_factor=1)
            admin.create_acls([Acl(ResourceType.TOPIC, topic, "User:alice", operation)])
        options = {"kafka.bootstrap.servers": broker.bootstrap, **SASL}
        assert spark.read.format("ottla").options(**options).option("subscribe", "in").load().count() == 0
        frame = spark.createDataFrame([("v",)], "value string")
        frame.write.format("ottla").options(**options).option("topic", "out").mode("append").save()


@pytest.mark.spark
def test_a_sink_that_writes_exactly_once_needs_the_rights_of_its_page(spark: SparkSession, tmp_path: Path) -> None:
    """Without any one of them it fails, names what it may not use, and has committed nothing."""
    register(spark)
    ids, progress = "once-", "spark-progress-once"
    create = Acl(ResourceType.TOPIC, progress, "User:alice", AclOperation.CREATE)
    rights = [
        Acl(ResourceType.TOPIC, progress, "User:alice", AclOperation.READ),
        Acl(ResourceType.TOPIC, progress, "User:alice", AclOperation.WRITE),
        Acl(ResourceType.TRANSACTIONAL_ID, ids, "User:alice", AclOperation.WRITE, pattern_type=PatternType.PREFIXED),
        Acl(ResourceType.TOPIC, "out", "User:alice", AclOperation.WRITE),
    ]
    frame = spark.createDataFrame([("v",)], "value string").repartition(1)
    with broker_with_acls(tmp_path) as (broker, admin):
        admin.create_topic("out", partitions=1, replication_factor=1)
        options = {"kafka.bootstrap.servers": broker.bootstrap, **SASL, "topic": "out", "exactlyOnceName": "once"}

        def write() -> None:
            frame.write.format("ottla").options(**options).mode("append").save()

        admin.create_acls(rights)
        with pytest.raises(Exception, match=f"{progress} cannot be created: .* TOPIC_AUTHORIZATION_FAILED"):
            write()
        admin.create_acls([create])
        write()
        for lacking in rights:
            name, operation = lacking.resource_name, lacking.operation
            admin.delete_acls([AclFilter(resource_name=name, pattern_type=PatternType.ANY, operation=operation)])
            with pytest.raises(Exception, match=f"{name}.* [A-Z_]*_AUTHORIZATION_FAILED"):
                write()
            admin.create_acls([lacking])
        admin.create_acls([Acl(ResourceType.TOPIC, "out", "User:alice", AclOperation.READ)])
        committed = {**options, "kafka.isolation.level": "read_committed", "subscribe": "out"}
        del committed["topic"], committed["exactlyOnceName"]
        assert spark.read.format("ottla").options(**committed).load().count() == 1
