"""The bundled client, asyncio and blocking, at a broker with SASL: mechanisms that have users, and long sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.broker import BrokerProcess

import ottla
from ottla.client import Admin, AuthenticationFailed, Consumer, Producer
from ottla.client.secured import next_handshake_of
from ottla.client_core.handshake import Handshake, Settled
from ottla.client_core.sasl import Login

PASSWORD = "s3cret, of=alice"
LISTENER = "listener.name.sasl_plaintext"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    scram = [f"{name}=[name=carol,password=hush-hush]" for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
    overrides = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{LISTENER}.plain.sasl.jaas.config": f'{module} required user_alice="{PASSWORD}";',
        "connections.max.reauth.ms": "1500",
        "ottla.add.scram": " ".join(scram),
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), overrides) as running:
        yield running


def login(mechanism: str, username: str = "carol", password: str = "hush-hush") -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": username,
        "sasl_password": password,
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_scram_lets_in_who_knows_the_password(broker: BrokerProcess, mechanism: str) -> None:
    async with Admin(broker.bootstrap, **login(mechanism)) as admin:
        assert await admin.list_topics() == []
    with pytest.raises(AuthenticationFailed, match=rf"the {mechanism} login of user 'carol' failed: "):
        await Admin(broker.bootstrap, **login(mechanism, password="hush")).start()
    with pytest.raises(AuthenticationFailed, match="user 'nobody' failed: "):
        await Admin(broker.bootstrap, **login(mechanism, "nobody")).start()


def test_the_blocking_client_logs_in_as_the_other_does(broker: BrokerProcess) -> None:
    with ottla.Producer(broker.bootstrap, **login("PLAIN", "alice", PASSWORD)) as producer:
        assert producer.send("blocking", b"x").result().offset == 0
    refused = ottla.Admin(broker.bootstrap, **login("PLAIN", "alice", "wrong"))
    with pytest.raises(AuthenticationFailed, match="the PLAIN login of user 'alice' failed: "):
        refused.list_topics()
    refused.close()


async def test_sessions_go_on_while_records_flow_and_members_wait(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = 0

    def count(settled: Settled, login: Login) -> Handshake:
        nonlocal renewed
        renewed += 1
        return next_handshake_of(settled, login)

    monkeypatch.setattr("ottla.client.connection.next_handshake_of", count)
    options = login("SCRAM-SHA-256")
    async with (
        Producer(broker.bootstrap, **options) as producer,
        Consumer(broker.bootstrap, group_id="g", auto_offset_reset="earliest", **options) as consumer,
    ):
        consumer.subscribe(["flow"])
        sent = read = 0
        while renewed < 8:  # connections of the producer, of fetches, of the group
            delivery = await producer.send("flow", b"%d" % sent)
            assert (await delivery).offset == sent
            sent += 1
            for records in (await consumer.getmany(timeout_ms=10)).values():
                assert [int(record.value) for record in records] == list(range(read, read + len(records)))
                read += len(records)
        while read < sent:
            read += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
        await consumer.commit()


def test_a_password_is_nowhere_on_the_disk_or_in_the_log(broker: BrokerProcess, tmp_path: Path) -> None:
    found = [path for path in broker.directory.rglob("*") if path.is_file() and b"hush-hush" in path.read_bytes()]
    assert found == []
