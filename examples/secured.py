"""Security: a broker with TLS, a user with a password, and a right. It starts a broker of its own, and stops it.

python examples/secured.py      (needs pip install 'ottla[security]')
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from ottla.client import Admin, AuthenticationFailed, Consumer, Producer, TopicPartition

TOPIC = "example-secured"
OTTLA = [sys.executable, "-m", "ottla"]
PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret"}


def start_broker(place: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a broker that only serves who logs in over TLS. Returns its process and its address."""
    subprocess.run([*OTTLA, "tls", "make", str(place / "tls")], check=True, capture_output=True)
    overrides = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "log.dirs": str(place / "data"),
        "ottla.http.listener": "",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    command = [*OTTLA, "serve", str(place / "tls" / "server.properties")]
    for key, value in overrides.items():
        command += ["--override", f"{key}={value}"]
    # The users of a new data directory; later ones are added by `ottla users add`.
    for user, password in PASSWORDS.items():
        command += ["--add-scram", f"SCRAM-SHA-512=[name={user},password={password}]"]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert broker.stdout is not None
    line = broker.stdout.readline()  # listening on SASL_SSL://127.0.0.1:PORT
    if not line:
        raise SystemExit("the broker did not start")
    return broker, line.rpartition("/")[2].strip()


def login(address: str, place: Path, user: str, password: str) -> dict[str, str]:
    """The options of a client; a client.properties of Java has the same."""
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(place / "tls" / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
    }


def allow(options: dict[str, str], place: Path, *what: str) -> None:
    """Add an ACL by the command, which takes the same options from a file."""
    file = place / "admin.properties"
    file.touch(mode=0o600)
    file.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
    command = [*OTTLA, "acls", "add", "-b", options["bootstrap.servers"], "--command-config", str(file), *what]
    subprocess.run(command, check=True, capture_output=True)


async def main(address: str, place: Path) -> None:
    """Alice may write and read the topic once an ACL says so; somebody with a wrong password may nothing."""
    admin, alice = (login(address, place, user, password) for user, password in PASSWORDS.items())
    async with Admin(admin) as client:
        await client.create_topic(TOPIC, partitions=1)

    async with Admin(alice) as client:
        print(f"alice sees {await client.list_topics()}")
        for operation in ("read", "write"):
            rule = ("--allow-principal", "User:alice", "--operation", operation, "--topic", TOPIC)
            await asyncio.to_thread(allow, admin, place, *rule)
        print(f"alice sees {await client.list_topics()}")

    async with Producer(alice) as producer:
        await producer.send(TOPIC, b"for those who may read it")
    async with Consumer(alice) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        consumer.seek_to_beginning()
        async for record in consumer:
            print(f"alice reads: {(record.value or b'').decode()}")
            break

    try:
        await Admin(login(address, place, "alice", "a guess")).start()
    except AuthenticationFailed:
        print("with a wrong password: refused")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        process, listener = start_broker(Path(directory))
        try:
            asyncio.run(main(listener, Path(directory)))
        finally:
            process.terminate()
            process.wait()
