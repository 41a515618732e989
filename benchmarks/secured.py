"""Security on one broker, for `peers.py`: TLS, SCRAM log-ins and both together, 1,000 ACLs, quotas; the same settings
for every broker.

The brokers' one listener has the name PLAINTEXT, and `listener.security.protocol.map` has its real protocol, so that
the scripts that start brokers need not know it. Certificates are created for the run. ACLs are checked for a client
that has logged in (SASL PLAIN) as `User:bench`, which has two of them; quotas are so high that no request waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import frames
import servers
from secured_wire import Access, Refused, Round, Wire

from ottla.cli.certificates import Authority
from ottla.client import Admin
from ottla.client.admin_acl_results import Acl
from ottla.client.admin_users_results import ScramCredentialInfo, UserScramCredentialUpsertion
from ottla.client_core.sasl import Login
from ottla.protocol.acls import AclOperation, PatternType, ResourceType

TOPIC, FETCHED = "secured", "secured-fetched"
ACKS_ALL = -1
FETCHED_BATCHES = 64
SCRAM = "SCRAM-SHA-256"
PASSWORD = "bench-secret"
ACLS = 1_000
HIGH = 1e15
"""Bytes per second, and percent: a quota that no client reaches."""
READY_S = 60.0
"""The time after which a client of the setting must be served: Kafka's brokers learn users and ACLs with a delay."""
SPEAKS = "listener.security.protocol.map"


@dataclass(frozen=True)
class SecuredLoad:
    """One row: `count` requests in a round, or `count` log-ins if `batch_bytes` is 0."""

    name: str
    batch_bytes: int
    inflight: int
    count: int
    is_fetch: bool = False


@dataclass(frozen=True)
class Setting:
    """Brokers with the same configuration, and the loads that they get."""

    loads: tuple[SecuredLoad, ...]
    keys: Mapping[str, str]
    access: Access
    admin_options: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[Admin], Awaitable[None]] | None = None


@contextlib.contextmanager
def settings(only: str) -> Iterator[list[Setting]]:
    """The settings that have a row whose name contains `only`, with those rows; certificates are deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="ottla-certificates-") as folder:
        found = []
        stores = _stores(Path(folder))
        for setting in (_tls(stores), _scram(), _scram_over_tls(stores), _acls(), _quotas()):
            loads = tuple(load for load in setting.loads if only in load.name)
            if loads:
                found.append(Setting(loads, setting.keys, setting.access, setting.admin_options, setting.prepare))
        yield found


@dataclass(frozen=True)
class Stores:
    """The certificates of a run: a broker's configuration keys, and the clients' trust store."""

    keys: Mapping[str, str]
    trusted: Path

    def context(self) -> ssl.SSLContext:
        """The TLS context of a client."""
        return ssl.create_default_context(cafile=str(self.trusted))


def _stores(folder: Path) -> Stores:
    authority = Authority("Ottla benchmarks", datetime.now(UTC), 10)
    server = authority.sign("CN=bench", hosts=("localhost", "127.0.0.1"))
    store, trusted = folder / "server.pem", folder / "ca.pem"
    store.write_bytes(server.key + server.certificate)
    trusted.write_bytes(authority.pem.certificate)
    keys = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",  # at its start Kafka is also a client of itself
        "ssl.truststore.location": str(trusted),
    }
    return Stores(keys, trusted)


def _tls(stores: Stores) -> Setting:
    return Setting(
        (
            SecuredLoad("TLS: produce 1 MB, 5 in flight", 1_000_000, 5, 25),
            SecuredLoad("TLS: produce 16 KB, 5 in flight", 16_384, 5, 1_000),
            SecuredLoad("TLS: produce 100 B (round trip)", 170, 1, 2_000),
            SecuredLoad("TLS: fetch 1 MB", 1_000_000, 1, 100, is_fetch=True),
        ),
        {SPEAKS: "CONTROLLER:PLAINTEXT,PLAINTEXT:SSL", **stores.keys},
        Access(stores.context()),
        {"security_protocol": "SSL", "ssl_ca_location": str(stores.trusted)},
    )


def _login_keys() -> dict[str, str]:
    module = "org.apache.kafka.common.security"
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in ("admin", "bench"))
    own = f'username="admin" password="{PASSWORD}"'  # the user as which a broker of a cluster logs in to the others
    return {
        SPEAKS: "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f"{module}.plain.PlainLoginModule required {own} {users};",
        "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
    }


_ADMIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "admin",
    "sasl_password": PASSWORD,
}


async def _add_user(admin: Admin) -> None:
    user = UserScramCredentialUpsertion("bench", ScramCredentialInfo(SCRAM), PASSWORD)
    await admin.alter_user_scram_credentials([user])


def _scram() -> Setting:
    load = SecuredLoad("SCRAM-SHA-256 log-ins", 0, 1, 200)
    return Setting((load,), _login_keys(), Access(login=Login(SCRAM, "bench", PASSWORD)), _ADMIN, _add_user)


def _scram_over_tls(stores: Stores) -> Setting:
    """SCRAM over TLS, as most secured brokers have it."""
    loads = (
        SecuredLoad("SASL_SSL: produce 100 B (round trip)", 170, 1, 2_000),
        SecuredLoad("SASL_SSL: SCRAM-SHA-256 log-ins", 0, 1, 100),
    )
    keys = {**_login_keys(), **stores.keys, SPEAKS: "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_SSL"}
    admin = {**_ADMIN, "security_protocol": "SASL_SSL", "ssl_ca_location": str(stores.trusted)}
    return Setting(loads, keys, Access(stores.context(), Login(SCRAM, "bench", PASSWORD)), admin, _add_user)


def _acls() -> Setting:
    async def add_acls(admin: Admin) -> None:
        operations = (AclOperation.READ, AclOperation.WRITE)
        own = [Acl(ResourceType.TOPIC, TOPIC, "User:bench", one) for one in operations]
        others = [
            Acl(
                ResourceType.TOPIC,
                f"topic-{number}",
                f"User:user-{number % 100}",
                operations[number % 2],
                pattern_type=PatternType.PREFIXED if number % 4 == 0 else PatternType.LITERAL,
            )
            for number in range(ACLS - len(own))
        ]
        await admin.create_acls(own + others)

    keys = {
        **_login_keys(),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",  # Kafka's broker is ANONYMOUS to its own controller
    }
    load = SecuredLoad(f"{ACLS:,} ACLs: produce 100 B (round trip)", 170, 1, 2_000)
    return Setting((load,), keys, Access(login=Login("PLAIN", "bench", PASSWORD)), _ADMIN, add_acls)


def _quotas() -> Setting:
    async def set_quotas(admin: Admin) -> None:
        high = {"producer_byte_rate": HIGH, "consumer_byte_rate": HIGH, "request_percentage": HIGH}
        await admin.alter_quotas({(("client-id", None),): high, (("user", None),): high})

    load = SecuredLoad("quotas: produce 100 B (round trip)", 170, 1, 2_000)
    return Setting((load,), {}, Access(), {}, set_quotas)


def prepare(server: servers.Server, setting: Setting) -> None:
    """Create the topic, and the users, ACLs and quotas of the setting; return when a client of it is served."""

    async def ask() -> None:
        async with Admin(bootstrap_servers=f"{server.host}:{server.port}", **setting.admin_options) as admin:
            for topic in (TOPIC, FETCHED):
                await admin.create_topic(topic, partitions=1)
            if setting.prepare is not None:
                await setting.prepare(admin)

    asyncio.run(ask())
    deadline = time.monotonic() + READY_S
    exchange = frames.produce_exchange(TOPIC, frames.batch_of(170)[0], ACKS_ALL)
    while True:
        try:
            with contextlib.closing(Wire(server.host, server.port, setting.access)) as wire:
                wire.run(exchange, 1, 1)
            return
        except Refused as reason:
            if time.monotonic() > deadline:
                raise servers.CannotRun(f"{server.name}: no client is served: {reason}") from None
            time.sleep(0.1)  # between two attempts; nothing is measured yet


def rounds_of(
    load: SecuredLoad, running: Mapping[str, servers.Server], setting: Setting, *, rounds: int, warm: int, scale: float
) -> dict[str, list[dict[str, float]]]:
    """The figures of the rounds of one load, by broker: the brokers in turn, after `warm` uncounted rounds."""
    count = max(10, int(load.count * scale))
    results: dict[str, list[dict[str, float]]] = {name: [] for name in running}
    with contextlib.ExitStack() as open_wires:
        turns: dict[str, Callable[[], Round]] = {}
        for name, server in running.items():
            if not load.batch_bytes:
                turns[name] = partial(_log_ins, server, setting.access, count)
                continue
            wire = open_wires.enter_context(contextlib.closing(Wire(server.host, server.port, setting.access)))
            turns[name] = partial(_fetches if load.is_fetch else _produces, wire, load, count)
            if load.is_fetch:
                _fill(wire, load)
        for number in range(warm + rounds):
            for name, server in running.items():
                before, started = server.cpu, time.perf_counter()
                done = turns[name]()
                elapsed_s, cpu_s = time.perf_counter() - started, server.cpu - before
                if number >= warm:
                    results[name].append(_figures(cpu_s, elapsed_s, done))
    return results


def _produces(wire: Wire, load: SecuredLoad, count: int) -> Round:
    batch, _ = frames.batch_of(load.batch_bytes)
    return wire.run(frames.produce_exchange(TOPIC, batch, ACKS_ALL), load.inflight, count)


def _fill(wire: Wire, load: SecuredLoad) -> None:
    batch, _ = frames.batch_of(load.batch_bytes)
    wire.run(frames.produce_exchange(FETCHED, batch, ACKS_ALL), 5, FETCHED_BATCHES)


def _fetches(wire: Wire, load: SecuredLoad, count: int) -> Round:
    batch, records = frames.batch_of(load.batch_bytes)
    exchange = frames.fetch_exchange(FETCHED, len(batch))
    return wire.run(exchange, load.inflight, count, records, records * FETCHED_BATCHES)


def _log_ins(server: servers.Server, access: Access, count: int) -> Round:
    """One connection after the other: TCP, SaslHandshake, two SaslAuthenticate, the end."""
    done = Round()
    for _ in range(count):
        started = time.perf_counter()
        Wire(server.host, server.port, access).close()
        done.times_s.append(time.perf_counter() - started)
    return done


def _figures(cpu_s: float, elapsed_s: float, done: Round) -> dict[str, float]:
    count, times = len(done.times_s), sorted(done.times_s)
    return {
        "cpu_us": cpu_s / count * 1e6,
        "rate": count / elapsed_s,
        "mb_s": max(done.sent_bytes, done.received_bytes) / elapsed_s / 1e6,
        "p50": statistics.median(times) * 1e6,
        "p99": times[min(count - 1, int(count * 0.99))] * 1e6,
    }
